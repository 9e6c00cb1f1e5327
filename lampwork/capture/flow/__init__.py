"""Operators that take functions (`torch.cond`, loops): nodes whose arguments are graphs."""

#: All calls, where they are left to eager.
ALL = "control flow"
