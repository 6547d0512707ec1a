"""Every stage that a device could hold: which layers spill to host RAM, and how long it takes."""
