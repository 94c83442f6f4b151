/* The scenarios. Each one reads its options, measures, and reports. */
#ifndef SCENARIOS_H
#define SCENARIOS_H

void measure_flow(void);
void measure_seed(void);
void measure_replay(void);
void measure_live(void);
void measure_connects(void);
void measure_fleet(void);
void run_null_broker(void);

#endif
