"""Every interleaving of the control messages of small cases, through the membership protocol that a node runs.

The simulator draws schedules; this takes all of them, as far as the budgets of a case go: so many crashes, false
suspicions, losses and attempts to join. What surrounds the protocol is a model (`world`), and where that allows
more than `membership.group` does, it is on the safe side: what holds here, holds there.
"""
