"""`natsr serve`: many series over HTTP, each with a forecaster that learns from every row.

What keeps it right, in one sentence: the log of observations is the truth, and everything else is a function of it. A
row is in the durable log before it is acknowledged; learning reads the log, row by row and in order; snapshots of
learners only save time. So whatever is killed when, the same rows give the same forecasts.

| module      | what it decides                                                                             |
|-------------|---------------------------------------------------------------------------------------------|
| `settings`  | limits, and where it may listen                                                             |
| `faults`    | errors as people see them, and what a database's error means                                |
| `tables`    | what is kept, on SQLite or PostgreSQL; `store` reads and writes it                          |
| `admit`     | which row is new, a duplicate, or refused                                                   |
| `journal`   | the one writer: many requests in one durable commit                                         |
| `snapshots` | learners on disk                                                                            |
| `series`    | one series in memory                                                                        |
| `learner`   | one learner as the service uses it; `processes` has those that live in another process      |
| `lanes`     | whose turn it is                                                                            |
| `learners`  | the threads that learn: one at a time for each series, cold ones leave memory               |
| `service`   | the verbs: create, observe, forecast, look back, delete                                     |
| `tokens`    | who may do what                                                                             |
| `guard`     | what is asked before a request is read: token, rate, size                                   |
| `schemas`   | what goes in and out; `answers` writes it, `routes` and `app` are the HTTP around it        |
"""
