"""Restarts of pods, roles and whole jobs: what was lost, why, how much is restarted, and what is recorded.

A restart only increments the replica's replacement number (or the attempt) in the Record. `workload.pods`
then deletes the pod that carries the old number and, once it is gone, creates the next one, so a restart
takes two reconciles. Recording the next number is what counts the failure: a failed pod that is observed
again is not counted twice. A pod's own failure uses a restart, and so does its eviction for exceeding its own
storage limits. Any other eviction, a deletion or a lost node does not.
"""
