"""Operators that take functions (`torch.cond`, loops): nodes whose arguments are graphs."""
