"""How fast given devices serve a model: no planning, only the cost model."""
