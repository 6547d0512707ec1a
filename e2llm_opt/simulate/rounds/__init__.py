"""How long rounds of decoding take, in closed form."""
