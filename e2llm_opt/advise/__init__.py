"""What to buy, what to give up, what to retire: each change is planned again and weighed."""
