package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/perdure/perdure"
	"github.com/perdure/perdure/embedded"
)

// shards is how many slices the addresses are divided into.
const shards = 300

// node is one process: the engine with the code of the application, and the database.
type node struct {
	app   *perdure.App
	pool  *pgxpool.Pool
	log   *requestLog
	areas []area
}

// area is a part of the application: its code, and its routes.
type area interface {
	definitions() perdure.Group
	routes(n *node, mux *http.ServeMux)
}

// newAreas returns all parts.
func newAreas(pool *pgxpool.Pool, cfg config) []area {
	return []area{
		newCounters(), newKV(), newRecords(pool), newLogs(pool), newAccounts(pool), newTraits(), newTimers(), newCross(), newStateless(pool),
		newOrders(pool), newTicker(pool, cfg),
	}
}

// openNode creates the tables and opens the engine on the same database.
func openNode(ctx context.Context, cfg config) (*node, error) {
	settings, err := pgxpool.ParseConfig(cfg.postgres)
	if err != nil {
		return nil, fmt.Errorf("POSTGRES_URL: %w", err)
	}
	settings.MaxConns = 10
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, err
	}
	if err := createTables(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}

	n := &node{pool: pool, log: newRequestLog(pool, cfg.logger), areas: newAreas(pool, cfg)}
	all := perdure.Group{}
	for _, a := range n.areas {
		all = append(all, a.definitions()...)
	}
	n.app, err = embedded.Config{
		Shards: shards, Logger: cfg.logger, AllowUnsafe: cfg.unsafe, LeaseTTL: cfg.lease, Name: "cluster-tests",
	}.Open(ctx, cfg.postgres, all)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return n, nil
}

func (n *node) close() error {
	defer n.pool.Close()
	return n.app.Close()
}

// createTables creates the tables of the application. If several nodes start at the same time, they
// do this one after the other.
func createTables(ctx context.Context, pool *pgxpool.Pool) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, statement := range append([]string{`select pg_advisory_xact_lock(7345312210)`}, tables...) {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("create tables: %w", err)
			}
		}
		return nil
	})
}

var tables = []string{
	`create schema if not exists cluster_tests`,
	`create table if not exists cluster_tests.execution (
		owner text not null, id text not null, steps text[] not null default '{}', result text, primary key (owner, id))`,
	`create table if not exists cluster_tests.activity_log (
		owner text not null, id text not null, action text not null, at timestamptz not null, n bigserial, primary key (owner, id))`,
	`create table if not exists cluster_tests.account (id text primary key, transfers bigint not null, total bigint not null)`,
	`create table if not exists cluster_tests.transfer (
		n bigserial primary key, account text not null, recipient text not null, amount bigint not null)`,
	`create index if not exists transfer_account on cluster_tests.transfer (account)`,
	`create table if not exists cluster_tests.stateless_counter (id text primary key, value bigint not null)`,
	`create table if not exists cluster_tests.stateless_request (id text primary key, value bigint not null)`,
	`create table if not exists cluster_tests.order_step (
		n bigserial primary key, order_id text not null, step text not null, detail text not null, at timestamptz not null)`,
	`create index if not exists order_step_order on cluster_tests.order_step (order_id)`,
	`create table if not exists cluster_tests.singleton (
		name text primary key, epoch bigint not null, runner_id text not null, tick_count bigint not null, last_tick_at timestamptz not null,
		became_leader_at timestamptz not null, graceful_shutdown_at timestamptz)`,
	`create table if not exists cluster_tests.journal (
		key text primary key, value_size bigint not null, created_at timestamptz not null default now(),
		updated_at timestamptz not null default now(), completed_at timestamptz default now())`,
	`create table if not exists cluster_tests.message (
		request_id bigserial primary key, shard_id int not null, entity_type text not null, entity_id text not null, tag text not null,
		processed bool not null default false, retry_count int not null default 0, created_at timestamptz not null default now())`,
	`create table if not exists cluster_tests.reply (
		id bigserial primary key, request_id bigint not null, created_at timestamptz not null default now())`,
}

// exists turns the error for a missing row into ok = false.
func exists(err error) (ok bool, _ error) {
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
