package grafana

// rows returns all that is on the dashboard, from the question to the details.
func rows() []row {
	return []row{fresh(), stages(), lag(), keys(), actions(), redis(), trouble(), binlog(), kafka(), walks(), process()}
}

// quantiles are p50 and p99 of a histogram over all instances; by is kept apart, if it is not empty.
func quantiles(histogram, by string) []query {
	var all []query
	for _, q := range []struct{ q, name string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		legend, labels := q.name, "le"
		if by != "" {
			legend, labels = q.name+" {{"+by+"}}", by+", le"
		}
		all = append(all, query{"histogram_quantile(" + q.q + ", sum by (" + labels + ") (rate(" + histogram +
			"_bucket{$all}[$__rate_interval])))", legend})
	}
	return all
}

// quantile is one of them.
func quantile(q, histogram, by string) query {
	return query{"histogram_quantile(" + q + ", sum by (" + by + ", le) (rate(" + histogram +
		"_bucket{$all}[$__rate_interval])))", "{{" + by + "}}"}
}

// perSecond is the rate of a counter, by some labels.
func perSecond(counter, by, legend string) query {
	return query{"sum by (" + by + ") (rate(" + counter + "{$all}[$__rate_interval]))", legend}
}

func fresh() row {
	return row{"Is it fresh?", [][]panel{{
		{
			title: "State", description: "What `freshet status` says; its sentence says why.", number: true, named: true,
			queries: []query{{`sum by (instance, state) (freshet_state{$all} == 1)`, "{{instance}} {{state}}"}},
		},
		{
			title: "Fresh as of", description: "Everything that was committed this long ago is finished, final deletes " +
				"included.", unit: "s", number: true, warn: 15, bad: 60,
			queries: []query{{`time() - max by (instance) (freshet_fresh_as_of_timestamp_seconds{$all} > 0)`, "{{instance}}"}},
		},
		{
			title: "Commit to deleted, p99", unit: "s", number: true, warn: 1, bad: 10,
			queries: []query{{`histogram_quantile(0.99, sum by (le) (rate(freshet_invalidation_latency_seconds_bucket{$all}[$__rate_interval])))`, "p99"}},
		},
		{
			title: "Waiting for their final delete", description: "Keys deleted once whose second delete is not yet due.",
			unit: "short", number: true,
			queries: []query{{`sum(freshet_invalidator_pending_keys{$all})`, "keys"}},
		},
	}, {
		{
			title: "Commit to deleted", description: "From commit, by the source's clock, until Redis has acknowledged the " +
				"first delete.", unit: "s",
			queries: quantiles("freshet_invalidation_latency_seconds", ""),
		},
		{
			title: "Fresh as of, seconds ago", unit: "s",
			queries: []query{{`time() - (freshet_fresh_as_of_timestamp_seconds{$all} > 0)`, "{{instance}}"}},
		},
		{
			title: "Alarms", description: "What an operator must hear about: `freshet status` has the sentence.", unit: "short",
			queries: []query{{`sum by (kind) (increase(freshet_alarms_total{$all}[$__rate_interval]))`, "{{kind}}"}},
		},
	}}}
}

func stages() row {
	return row{"Stages: where the time goes", [][]panel{{
		{title: "p50 by stage", unit: "s", queries: []query{quantile("0.5", "freshet_stage_seconds", "stage")}},
		{
			title: "p99 by stage", description: "finish waits for second_delete on purpose.", unit: "s",
			queries: []query{quantile("0.99", "freshet_stage_seconds", "stage")},
		},
		{
			title: "Passed per second", description: "Transactions for read, batches for the others.", unit: "short",
			queries: []query{perSecond("freshet_stage_seconds_count", "stage", "{{stage}}")},
		},
	}}}
}

func lag() row {
	return row{"Lag", [][]panel{{
		{
			title: "Lag by partition", description: "How far finished work is behind the source's commits; 0 while idle and " +
				"known to be caught up.", unit: "s",
			queries: []query{{
				`max by (partition) (freshet_invalidator_partition_lag_seconds{$all})`,
				"partition {{partition}}",
			}},
		},
		{
			title: "Oldest unfinished batch", unit: "s",
			queries: []query{{`freshet_invalidator_oldest_unfinished_seconds{$all}`, "{{instance}}"}},
		},
		{
			title: "Keys under way", description: "Fetching waits at max_in_flight and max_pending.", unit: "short",
			queries: []query{
				{`sum(freshet_invalidator_in_flight_keys{$all})`, "in flight"},
				{`sum(freshet_invalidator_pending_keys{$all})`, "waiting for their final delete"},
				{`sum(freshet_invalidator_unmarked_keys{$all})`, "of these, not yet known to be visible"},
			},
		},
		{
			title: "Memory of unfinished work", description: "Fetching waits at max_memory.", unit: "bytes",
			queries: []query{{`freshet_invalidator_memory_bytes{$all}`, "{{instance}}"}},
		},
	}}}
}

func keys() row {
	return row{"Rows and keys", [][]panel{{
		{
			title: "Row changes by mapping, per second", unit: "short",
			queries: []query{perSecond("freshet_router_rows_total", "mapping, table", "{{mapping}} {{table}}")},
		},
		{
			title: "Keys by mapping, per second", unit: "short",
			queries: []query{perSecond("freshet_router_keys_total", "mapping, table", "{{mapping}} {{table}}")},
		},
		{
			title: "Deletes acknowledged, per second", unit: "short",
			queries: []query{perSecond("freshet_invalidator_deletes_acknowledged_total", "delete", "{{delete}}")},
		},
		{
			title: "Found in Redis", description: "Which share of the deleted keys existed. Near 0: the mappings may not name " +
				"what the application caches.", unit: "percentunit",
			queries: []query{{`sum(rate(freshet_invalidator_keys_found_total{$all}[$__rate_interval])) / sum(rate(freshet_invalidator_deletes_acknowledged_total{$all}[$__rate_interval]))`, "found"}},
		},
	}}}
}

func actions() row {
	return row{"Actions other than deletes", [][]panel{{
		{
			title: "By action, per second", unit: "short",
			queries: []query{perSecond("freshet_invalidator_actions_total", "action", "{{action}}")},
		},
		{
			title: "By what they did, per second",
			description: "forgotten: deleted where nothing could be written safely, as in a backlog. older: a newer value was " +
				"there.", unit: "short",
			queries: []query{perSecond("freshet_invalidator_actions_total", "outcome", "{{outcome}}")},
		},
		{
			title: "Waiting", description: "For the rate_limit of their mapping, or for a query to begin.", unit: "short",
			queries: []query{
				{`sum(freshet_invalidator_rate_limited_keys{$all})`, "for rate_limit"},
				{`sum(freshet_invalidator_rebuild_queue_keys{$all})`, "for a query"},
			},
		},
		{
			title: "Saved, per second", description: "Keys that a later change's action served while they waited for " +
				"rate_limit, and keys that shared another's query.", unit: "short",
			queries: []query{
				perSecond("freshet_invalidator_coalesced_total", "job", "coalesced"),
				perSecond("freshet_invalidator_rebuilds_joined_total", "job", "shared a query"),
			},
		},
	}, {
		{
			title: "Queries that rebuild, per second", unit: "short",
			queries: []query{perSecond("freshet_invalidator_rebuild_queries_total", "result", "{{result}}")},
		},
		{title: "Queries, p99 by mapping", description: "Shown where a mapping has a query.", unit: "s", queries: []query{
			{`histogram_quantile(0.99, sum by (mapping, table, le) (rate(freshet_rebuild_query_duration_seconds_bucket{$all}[$__rate_interval])))`, "{{mapping}} {{table}}"},
		}},
		{
			title: "Query errors, and queries on the source for a replica, per second", unit: "short",
			queries: []query{
				perSecond("freshet_rebuild_query_errors_total", "mapping, table, class", "{{mapping}} {{table}} {{class}}"),
				perSecond("freshet_rebuild_queries_on_source_total", "mapping, table", "{{mapping}} {{table}} on the source"),
			},
		},
		{
			title: "Not written, not sent, per second",
			description: "Values, fields and members that were deleted instead of written, and messages that were not made, " +
				"because the row did not have what they need.", unit: "short",
			queries: []query{
				perSecond("freshet_router_forgotten_values_total", "mapping, table, by",
					"{{mapping}} {{table}} not written: {{by}}"),
				perSecond("freshet_router_unsent_notices_total", "mapping, table, by", "{{mapping}} {{table}} not sent: {{by}}"),
			},
		},
	}}}
}

func redis() row {
	return row{"Redis", [][]panel{{
		{
			title:       "Nodes of Redis away",
			description: "Masters of a cluster, or the one server. Slots: of a cluster, those that no node has.", unit: "short",
			queries: []query{
				{`freshet_invalidator_redis_nodes_away{$all}`, "{{instance}}"},
				{`freshet_invalidator_redis_slots_unserved{$all}`, "{{instance}}, slots without a node"},
			},
		},
		{title: "Round trips", unit: "s", queries: quantiles("freshet_invalidator_round_trip_seconds", "")},
		{
			title: "Outages and retried round trips", unit: "short",
			queries: []query{
				{`sum(increase(freshet_invalidator_redis_outages_total{$all}[$__rate_interval]))`, "outages"},
				{`sum(increase(freshet_invalidator_redis_retries_total{$all}[$__rate_interval]))`, "retried round trips"},
			},
		},
		{
			title:       "Final deletes repeated, per second",
			description: "Because Redis answered slower than a quarter of second_delete.", unit: "short",
			queries: []query{perSecond("freshet_invalidator_deletes_repeated_total", "instance", "{{instance}}")},
		},
	}}}
}

func trouble() row {
	return row{"Retries and dead letters", [][]panel{{
		{
			title: "Keys in trouble", unit: "short",
			queries: []query{
				{`sum(freshet_invalidator_keys_in_trouble{$all})`, "tried again in place"},
				{`sum(freshet_store_parked_keys{$all})`, "parked"},
				{`sum(freshet_store_dead_letters{$all})`, "dead letters"},
			},
		},
		{
			title: "Doubts", description: "Causes for which keys may be stale until somebody dismisses them: `freshet doubts " +
				"list`.", unit: "short",
			queries: []query{{`max by (cause) (freshet_doubts{$all})`, "{{cause}}"}},
		},
		{
			title: "What became of them, per second", unit: "short",
			queries: []query{
				perSecond("freshet_invalidator_commands_refused_total", "job", "refused"),
				perSecond("freshet_invalidator_keys_parked_total", "job", "parked"),
				perSecond("freshet_invalidator_keys_settled_total", "job", "deleted after all"),
				perSecond("freshet_invalidator_dead_letters_total", "job", "given up"),
			},
		},
		{
			title: "Durable writes, p99", unit: "s",
			queries: []query{quantile("0.99", "freshet_store_write_seconds", "operation")},
		},
		{
			title: "Writes that failed, per second", unit: "short",
			queries: []query{perSecond("freshet_store_write_failures_total", "operation", "{{operation}}")},
		},
	}}}
}

func binlog() row {
	return row{"Source", [][]panel{{
		{title: "Connected", unit: "short", queries: []query{{`freshet_source_connected{$all}`, "{{instance}}"}}},
		{title: "Reading is behind", unit: "s", queries: []query{{`freshet_source_lag_seconds{$all}`, "{{instance}}"}}},
		{
			title: "Binlog kept for", description: "For how long the source keeps what must be read next.", unit: "s",
			queries: []query{{`freshet_source_retention_headroom_seconds{$all}`, "{{instance}}"}},
		},
		{
			title: "Read per second", unit: "short",
			queries: []query{
				perSecond("freshet_source_transactions_total", "job", "transactions"),
				perSecond("freshet_source_rows_total", "job", "rows of mapped tables"),
				perSecond("freshet_source_events_total", "job", "events"),
			},
		},
	}, {
		{
			title: "Received", unit: "Bps",
			queries: []query{perSecond("freshet_source_received_bytes_total", "instance", "{{instance}}")},
		},
		{
			title: "Connection attempts, per second", unit: "short",
			queries: []query{perSecond("freshet_source_connects_total", "result", "{{result}}")},
		},
		{
			title: "Questions and marks, per second", description: "Without marks final deletes wait.", unit: "short",
			queries: []query{
				perSecond("freshet_source_asks_total", "result", "questions {{result}}"),
				perSecond("freshet_source_marks_total", "job", "marks"),
			},
		},
		{
			title: "Batches not confirmed", unit: "short",
			queries: []query{{`freshet_source_unconfirmed_batches{$all}`, "{{instance}}"}},
		},
	}, {
		{
			title: "Server that is read", description: "Which of source.addresses the binlog comes from: another one after a " +
				"failover.", unit: "short",
			queries: []query{{`max by (server) (freshet_source_streamed{$all})`, "{{server}}"}},
		},
		{
			title: "Two servers are written to", description: "The alarm source_split: only one of them is read.", unit: "short",
			queries: []query{{`sum by (instance) (increase(freshet_alarms_total{$all, kind="source_split"}[$__rate_interval]))`, "{{instance}}"}},
		},
	}}}
}

func kafka() row {
	return row{"Kafka", [][]panel{{
		{
			title: "Records behind, by partition", unit: "short",
			queries: []query{{`max by (partition) (freshet_kafka_lag_records{$all})`, "partition {{partition}}"}},
		},
		{
			title: "Records per second", unit: "short",
			queries: []query{
				perSecond("freshet_kafka_produced_records_total", "job", "produced"),
				perSecond("freshet_kafka_fetched_records_total", "job", "fetched"),
			},
		},
		{title: "Acknowledged by the brokers", unit: "s", queries: quantiles("freshet_kafka_produce_seconds", "")},
		{
			title: "Partitions by invalidator", unit: "short",
			queries: []query{{`freshet_kafka_owned_partitions{$all}`, "{{instance}}"}},
		},
	}, {
		{
			title: "Kept for, by partition", description: "For how long the brokers keep what must be fetched next.", unit: "s",
			queries: []query{{
				`min by (partition) (freshet_kafka_retention_headroom_seconds{$all})`,
				"partition {{partition}}",
			}},
		},
		{
			title: "Requests that failed, per second", unit: "short",
			queries: []query{perSecond("freshet_kafka_request_errors_total", "class", "{{class}}")},
		},
		{
			title: "Waiting for the brokers", unit: "bytes",
			queries: []query{{`freshet_kafka_producer_buffered_bytes{$all}`, "{{instance}}"}},
		},
		{
			title: "Held up by quotas", description: "Seconds per second.", unit: "short",
			queries: []query{{
				`sum by (instance) (rate(freshet_kafka_throttled_seconds_total{$all}[$__rate_interval]))`,
				"{{instance}}",
			}},
		},
	}}}
}

func walks() row {
	return row{"Rows that are read", [][]panel{{
		{
			title: "Tables that are being read", description: "For warm-ups, and for doubts.", unit: "short",
			queries: []query{{`sum by (for) (freshet_walks_running{$all})`, "for a {{for}}"}},
		},
		{
			title: "Rows read, per second", unit: "short",
			queries: []query{perSecond("freshet_walk_rows_total", "for", "for a {{for}}")},
		},
		{
			title: "Keys of these rows, per second", description: "Handed on to be written or forgotten.", unit: "short",
			queries: []query{perSecond("freshet_walk_keys_total", "for", "for a {{for}}")},
		},
	}}}
}

func process() row {
	return row{"Process", [][]panel{{
		{
			title: "CPU cores", unit: "short",
			queries: []query{perSecond("process_cpu_seconds_total", "instance", "{{instance}}")},
		},
		{title: "Resident memory", unit: "bytes", queries: []query{{`process_resident_memory_bytes{$all}`, "{{instance}}"}}},
		{title: "Goroutines", unit: "short", queries: []query{{`go_goroutines{$all}`, "{{instance}}"}}},
		{
			title: "Version", number: true, named: true,
			queries: []query{{`count by (version) (freshet_build_info{$all})`, "{{version}}"}},
		},
	}}}
}
