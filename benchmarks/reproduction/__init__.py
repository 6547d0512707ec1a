"""What the headline benchmark is made of: the paper's plans and figures, ours beside them."""
