"""Every interleaving of the control messages of small cases, through the membership protocol that a node runs.

The simulator draws schedules; this takes all of them within the budgets of a case, which say how many crashes,
false suspicions, losses and attempts to join there may be. What surrounds the protocol is a model (`world`). Where
that allows more than `membership.group` does, it is on the safe side: what holds here, holds there.
"""
