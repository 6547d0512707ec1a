"""From a plan and a changed problem to the next plan, and the way there."""
