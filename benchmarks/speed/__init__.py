"""How long one online step takes, beside the step everyone would write first and the products it cannot do without."""
