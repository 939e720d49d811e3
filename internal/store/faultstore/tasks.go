package faultstore

import (
	"context"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
)

// LoadDead loads a dead task.
func (f *Store) LoadDead(ctx context.Context, key store.DeadKey) (*store.DeadRow, error) {
	return call(ctx, f, LoadDead, nil, func() (*store.DeadRow, error) { return f.inner.LoadDead(ctx, key) })
}

// ListDead lists dead tasks.
func (f *Store) ListDead(ctx context.Context, q store.DeadQuery) (store.DeadPage, error) {
	return call(ctx, f, ListDead, nil, func() (store.DeadPage, error) { return f.inner.ListDead(ctx, q) })
}

// CountDead counts dead tasks.
func (f *Store) CountDead(ctx context.Context, q store.DeadQuery) (int64, error) {
	return call(ctx, f, CountDead, nil, func() (int64, error) { return f.inner.CountDead(ctx, q) })
}

// GroupDead groups dead tasks.
func (f *Store) GroupDead(ctx context.Context, q store.DeadQuery, limit int) ([]store.DeadGroup, error) {
	return call(ctx, f, GroupDead, nil, func() ([]store.DeadGroup, error) { return f.inner.GroupDead(ctx, q, limit) })
}

// LoadDeadBefore loads old dead tasks of shards.
func (f *Store) LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after store.DeadPlace, limit int) ([]store.DeadRow, error) {
	return call(ctx, f, LoadDeadBefore, nil, func() ([]store.DeadRow, error) { return f.inner.LoadDeadBefore(ctx, shards, before, after, limit) })
}

// LoadTaskData loads data of tasks.
func (f *Store) LoadTaskData(ctx context.Context, key store.RunKey, r store.DataRange) ([]store.TaskDatum, error) {
	return call(ctx, f, LoadTaskData, nil, func() ([]store.TaskDatum, error) { return f.inner.LoadTaskData(ctx, key, r) })
}

// LoadLogs loads log lines of tasks.
func (f *Store) LoadLogs(ctx context.Context, key store.RunKey, task string, after store.LogPlace, limit int) ([]store.LogRow, error) {
	return call(ctx, f, LoadLogs, nil, func() ([]store.LogRow, error) { return f.inner.LoadLogs(ctx, key, task, after, limit) })
}

// PutSetting stores a setting.
func (f *Store) PutSetting(ctx context.Context, s store.Setting, expected int64) (int64, error) {
	return call(ctx, f, PutSetting, nil, func() (int64, error) { return f.inner.PutSetting(ctx, s, expected) })
}

// DeleteSetting removes a setting.
func (f *Store) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	return call(ctx, f, DeleteSetting, nil, func() (int64, error) { return f.inner.DeleteSetting(ctx, key, expected) })
}

// ListSettings lists settings.
func (f *Store) ListSettings(ctx context.Context, tenant, kind string) ([]store.Setting, error) {
	return call(ctx, f, ListSettings, nil, func() ([]store.Setting, error) { return f.inner.ListSettings(ctx, tenant, kind) })
}

// LoadSettings loads changed settings.
func (f *Store) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	return call(ctx, f, LoadSettings, nil, func() (store.SettingChanges, error) { return f.inner.LoadSettings(ctx, after) })
}

// PutPeerMail stores notes for other nodes.
func (f *Store) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	_, err := call(ctx, f, PutPeerMail, nil, func() (struct{}, error) { return struct{}{}, f.inner.PutPeerMail(ctx, rows) })
	return err
}

// TakePeerMail takes the notes for a node.
func (f *Store) TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]store.PeerMail, error) {
	return call(ctx, f, TakePeerMail, nil, func() ([]store.PeerMail, error) { return f.inner.TakePeerMail(ctx, node, limit, maxBytes) })
}

// NameWorkers stores and removes names of remote workers.
func (f *Store) NameWorkers(ctx context.Context, w store.WorkerNames) error {
	_, err := call(ctx, f, NameWorkers, nil, func() (struct{}, error) { return struct{}{}, f.inner.NameWorkers(ctx, w) })
	return err
}

// WorkerHomes returns the homes of remote workers (the servers that they are connected to).
func (f *Store) WorkerHomes(ctx context.Context) ([]model.NodeID, error) {
	return call(ctx, f, WorkerHomes, nil, func() ([]model.NodeID, error) { return f.inner.WorkerHomes(ctx) })
}

// PutAudit stores entries of the log of administrative actions.
func (f *Store) PutAudit(ctx context.Context, rows []store.AuditRow) error {
	_, err := call(ctx, f, PutAudit, nil, func() (struct{}, error) { return struct{}{}, f.inner.PutAudit(ctx, rows) })
	return err
}

// ListAudit lists entries of the log of administrative actions.
func (f *Store) ListAudit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	return call(ctx, f, ListAudit, nil, func() ([]store.AuditRow, error) { return f.inner.ListAudit(ctx, q) })
}

// AddReport stores a replay report.
func (f *Store) AddReport(ctx context.Context, row store.ReportRow, keep store.ReportBounds) (store.ReportRow, error) {
	return call(ctx, f, AddReport, nil, func() (store.ReportRow, error) { return f.inner.AddReport(ctx, row, keep) })
}

// LoadReport returns a replay report.
func (f *Store) LoadReport(ctx context.Context, tenant string, id model.ReportID) (*store.ReportRow, error) {
	return call(ctx, f, LoadReport, nil, func() (*store.ReportRow, error) { return f.inner.LoadReport(ctx, tenant, id) })
}

// ListReports lists replay reports.
func (f *Store) ListReports(ctx context.Context, q store.ReportQuery) ([]store.ReportRow, error) {
	return call(ctx, f, ListReports, nil, func() ([]store.ReportRow, error) { return f.inner.ListReports(ctx, q) })
}
