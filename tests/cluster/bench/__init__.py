"""The bench of the cluster: brokers, clients and faults, and a history that is judged in the end.

history      what clients, processes and faults did, in order
views        the history as publications, Sessions, subscriptions
checks       the invariants, each a pure function of the history and of the database in the end
connections  one Network Connection
drivers      clients: publishers, subscribers, groups, Wills, twins
proxies      TCP connections that can be held, delayed and reset
places       the processes: Postgres, NATS, the nodes
faults       what goes wrong in a cycle, chosen by a seed
run          cycles, their figures and their findings
broken       nodes with one broken line, for which the checks must find something

python -m tests.cluster.bench --seed 1 --cycles 3
"""
