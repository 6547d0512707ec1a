"""Plans that follow the load: what arrives is watched, and another plan taken where it pays."""
