"""Planning: formulas of what a gallery takes, with measured unit costs, and what engines take beside ours."""
