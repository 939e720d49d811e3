package crash

import (
	"context"
	"fmt"

	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/store"
	"github.com/perdure/perdure/internal/store/faultstore"
)

func (p *port) LoadDead(ctx context.Context, key store.DeadKey) (*store.DeadRow, error) {
	row, err := p.Store.LoadDead(ctx, key)
	return row, p.end(faultstore.LoadDead, "", err)
}

func (p *port) ListDead(ctx context.Context, q store.DeadQuery) (store.DeadPage, error) {
	page, err := p.Store.ListDead(ctx, q)
	return page, p.end(faultstore.ListDead, "", err)
}

func (p *port) CountDead(ctx context.Context, q store.DeadQuery) (int64, error) {
	n, err := p.Store.CountDead(ctx, q)
	return n, p.end(faultstore.CountDead, "", err)
}

func (p *port) GroupDead(ctx context.Context, q store.DeadQuery, limit int) ([]store.DeadGroup, error) {
	groups, err := p.Store.GroupDead(ctx, q, limit)
	return groups, p.end(faultstore.GroupDead, "", err)
}

func (p *port) LoadDeadBefore(ctx context.Context, shards []model.ShardID, before model.Time, after store.DeadPlace, limit int) ([]store.DeadRow, error) {
	rows, err := p.Store.LoadDeadBefore(ctx, shards, before, after, limit)
	return rows, p.end(faultstore.LoadDeadBefore, "", err)
}

func (p *port) LoadTaskData(ctx context.Context, key store.RunKey, r store.DataRange) ([]store.TaskDatum, error) {
	rows, err := p.Store.LoadTaskData(ctx, key, r)
	return rows, p.end(faultstore.LoadTaskData, "", err)
}

func (p *port) LoadLogs(ctx context.Context, key store.RunKey, task string, after store.LogPlace, limit int) ([]store.LogRow, error) {
	rows, err := p.Store.LoadLogs(ctx, key, task, after, limit)
	return rows, p.end(faultstore.LoadLogs, "", err)
}

func (p *port) PutSetting(ctx context.Context, s store.Setting, expected int64) (int64, error) {
	version, err := p.Store.PutSetting(ctx, s, expected)
	return version, p.end(faultstore.PutSetting, " "+s.SettingKey.String(), err)
}

func (p *port) DeleteSetting(ctx context.Context, key store.SettingKey, expected int64) (int64, error) {
	version, err := p.Store.DeleteSetting(ctx, key, expected)
	return version, p.end(faultstore.DeleteSetting, " "+key.String(), err)
}

func (p *port) ListSettings(ctx context.Context, tenant, kind string) ([]store.Setting, error) {
	rows, err := p.Store.ListSettings(ctx, tenant, kind)
	return rows, p.end(faultstore.ListSettings, "", err)
}

func (p *port) LoadSettings(ctx context.Context, after int64) (store.SettingChanges, error) {
	changes, err := p.Store.LoadSettings(ctx, after)
	return changes, p.end(faultstore.LoadSettings, "", err)
}

func (p *port) PutPeerMail(ctx context.Context, rows []store.PeerMail) error {
	return p.end(faultstore.PutPeerMail, fmt.Sprintf(": %d", len(rows)), p.Store.PutPeerMail(ctx, rows))
}

func (p *port) TakePeerMail(ctx context.Context, node model.NodeID, limit, maxBytes int) ([]store.PeerMail, error) {
	rows, err := p.Store.TakePeerMail(ctx, node, limit, maxBytes)
	return rows, p.end(faultstore.TakePeerMail, fmt.Sprintf(": %d", len(rows)), err)
}

func (p *port) PutAudit(ctx context.Context, rows []store.AuditRow) error {
	return p.end(faultstore.PutAudit, fmt.Sprintf(": %d", len(rows)), p.Store.PutAudit(ctx, rows))
}

func (p *port) ListAudit(ctx context.Context, q store.AuditQuery) ([]store.AuditRow, error) {
	rows, err := p.Store.ListAudit(ctx, q)
	return rows, p.end(faultstore.ListAudit, "", err)
}

func (p *port) AddReport(ctx context.Context, row store.ReportRow, keep store.ReportBounds) (store.ReportRow, error) {
	got, err := p.Store.AddReport(ctx, row, keep)
	return got, p.end(faultstore.AddReport, "", err)
}

func (p *port) LoadReport(ctx context.Context, tenant string, id model.ReportID) (*store.ReportRow, error) {
	got, err := p.Store.LoadReport(ctx, tenant, id)
	return got, p.end(faultstore.LoadReport, "", err)
}

func (p *port) ListReports(ctx context.Context, q store.ReportQuery) ([]store.ReportRow, error) {
	rows, err := p.Store.ListReports(ctx, q)
	return rows, p.end(faultstore.ListReports, "", err)
}
