"""The tuner, on plain Python values: no OpenCL and no matrix product in here.

To read it in order:

level      how coarsely sizes are bucketed, and how good is good enough
tunable    candidates, groups, and the set that shares a key
plan       the rounds of candidates to try
bounds     the least time the hardware allows, and the limit
samples    the statistics of one candidate
standing   a candidate in its round
schedule   sampling a round: who is measured when, dropped, and wins
ties       telling two candidates apart that are closer than their spread
contest    tuning one key, round after round
reuse      what earlier decisions still tell
decision   the winner with all the evidence, as stored and as reported
memory     decisions of this process, and threads that wait for one
tuner      a call, from end to end
context    what all of this is given from outside
"""
