package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// entityTypes are the types that the application registers.
var entityTypes = []string{
	"Counter", "KVStore", "WorkflowTest", "ActivityTest", "TraitTest", "TimerTest", "CrossEntity", "SqlActivityTest", "StatelessCounter", "ActivityGroupTest",
	"Workflow/SimpleWorkflow", "Workflow/FailingWorkflow", "Workflow/LongWorkflow", "Workflow/ActivityWorkflow", "Workflow/ScheduleTimerWorkflow",
	"Workflow/SqlTransferWorkflow", "Workflow/SqlFailingTransferWorkflow", "Workflow/SqlCountWorkflow", "Workflow/OrderWorkflow",
}

type shardsInfo struct {
	Total    int      `json:"total_shards"`
	PerGroup int      `json:"shards_per_group"`
	Groups   []string `json:"shard_groups"`
}

type entitiesInfo struct {
	Types  []string `json:"entity_types"`
	Active int      `json:"active_count"`
}

type messageRow struct {
	RequestID  int64     `json:"request_id"`
	Group      string    `json:"shard_group"`
	Shard      int       `json:"shard_id"`
	Type       string    `json:"entity_type"`
	Entity     string    `json:"entity_id"`
	Tag        string    `json:"tag"`
	IsRequest  bool      `json:"is_request"`
	Processed  bool      `json:"processed"`
	RetryCount int       `json:"retry_count"`
	Created    time.Time `json:"created_at"`
}

type replyRow struct {
	ID        int64     `json:"id"`
	RequestID int64     `json:"request_id"`
	Sequence  int64     `json:"sequence"`
	IsExit    bool      `json:"is_exit"`
	Created   time.Time `json:"created_at"`
}

type journalRow struct {
	Key       string     `json:"key"`
	Size      int64      `json:"value_size"`
	Created   time.Time  `json:"created_at"`
	Updated   time.Time  `json:"updated_at"`
	Completed *time.Time `json:"completed_at"`
}

func (n *node) debugRoutes(mux *http.ServeMux) {
	mux.Handle("GET /debug/shards", answer(func(*http.Request) (shardsInfo, error) { return shardsInfo{shards, shards, []string{"default"}}, nil }))
	mux.Handle("GET /debug/entities", answer(func(*http.Request) (entitiesInfo, error) { return entitiesInfo{entityTypes, n.log.active()}, nil }))

	mux.Handle("GET /debug/messages", answer(func(r *http.Request) ([]messageRow, error) {
		f := &filter{query: r.URL.Query()}
		f.text("entity_type", "entity_type = ")
		f.text("entity_id", "entity_id = ")
		f.text("tag", "tag = ")
		f.flag("processed", "processed = ")
		f.statement, f.order = `select request_id, 'default', shard_id, entity_type, entity_id, tag, true, processed, retry_count,
			created_at at time zone 'UTC' from cluster_tests.message`, `request_id desc`
		return list[messageRow](n, r, f)
	}))
	mux.Handle("GET /debug/replies", answer(func(r *http.Request) ([]replyRow, error) {
		f := &filter{query: r.URL.Query()}
		f.number("request_id", "request_id = ")
		f.flag("is_exit", "true = ") // every reply is the last one of its request
		f.statement, f.order = `select id, request_id, 2147483647::bigint, true, created_at at time zone 'UTC' from cluster_tests.reply`, `id desc`
		return list[replyRow](n, r, f)
	}))
	mux.Handle("GET /debug/journal", answer(func(r *http.Request) ([]journalRow, error) {
		f := &filter{query: r.URL.Query()}
		f.prefix("prefix", "key")
		f.flag("completed", "(completed_at is not null) = ")
		f.statement, f.order = `select key, value_size, created_at at time zone 'UTC', updated_at at time zone 'UTC',
			completed_at at time zone 'UTC' from cluster_tests.journal`, `created_at desc, key desc`
		return list[journalRow](n, r, f)
	}))
}

// list returns the rows that a filter selects, up to the limit in the request.
func list[T any](n *node, r *http.Request, f *filter) ([]T, error) {
	limit, err := f.limit()
	if err != nil {
		return nil, err
	}
	statement := f.statement
	if len(f.conditions) > 0 {
		statement += " where " + strings.Join(f.conditions, " and ")
	}
	rows, err := n.pool.Query(r.Context(), fmt.Sprintf("%s order by %s limit %d", statement, f.order, limit), f.args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[T])
}

// filter turns the parameters of a request into conditions.
type filter struct {
	statement, order string // the query without its conditions

	query      url.Values
	conditions []string
	args       []any
	problems   []error
}

func (f *filter) add(condition string, arg any) {
	f.args = append(f.args, arg)
	f.conditions = append(f.conditions, condition+"$"+strconv.Itoa(len(f.args)))
}

func (f *filter) text(name, condition string) {
	if v := f.query.Get(name); v != "" {
		f.add(condition, v)
	}
}

func (f *filter) prefix(name, column string) {
	if v := f.query.Get(name); v != "" {
		f.args = append(f.args, v)
		f.conditions = append(f.conditions, fmt.Sprintf("starts_with(%s, $%d)", column, len(f.args)))
	}
}

func (f *filter) number(name, condition string) {
	if v := f.query.Get(name); v != "" {
		n, err := strconv.ParseInt(v, 10, 64)
		f.problems = append(f.problems, err)
		f.add(condition, n)
	}
}

func (f *filter) flag(name, condition string) {
	if v := f.query.Get(name); v != "" {
		b, err := strconv.ParseBool(v)
		f.problems = append(f.problems, err)
		f.add(condition, b)
	}
}

// limit returns how many rows to list, or an error that says what is wrong with the parameters.
func (f *filter) limit() (n int, err error) {
	n = 100
	if v := f.query.Get("limit"); v != "" {
		n, err = strconv.Atoi(v)
		f.problems = append(f.problems, err)
	}
	if n < 0 {
		f.problems = append(f.problems, fmt.Errorf("limit %d is below zero", n))
	}
	return n, errors.Join(f.problems...)
}
