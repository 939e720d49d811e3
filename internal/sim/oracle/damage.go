package oracle

import (
	"fmt"

	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
	"github.com/perdure/perdure/internal/sim/scenario"
	"github.com/perdure/perdure/internal/store"
)

// In some simulations further rows are damaged: messages between shards, dead tasks, answers that
// nodes remember under request ids, and settings. The oracle checks these rules:
//
//   - A node sets an unreadable message aside, and later messages take effect.
//   - An unreadable dead task stays until an operator removes it. No user can requeue it. The other
//     dead tasks leave in time.
//   - If a user repeats a request whose answer is damaged, the user gets an error that says so, and
//     the request has no second effect.
//   - Nodes ignore an unreadable rule and apply all other rules.
//   - No node overwrites a page of limits that it cannot read. The leases on that page would be
//     lost, and limits would have too many holders (D1).
//
// An operator restores settings.

// damage says which rows are damaged. A damaged row stays damaged; only settings get new versions.
type damage struct {
	dead     map[store.DeadKey]bool
	replies  map[store.RequestKey]bool
	settings map[settingVersion]bool
	messages map[string]bool // by their damaged bodies
}

// settingVersion names a version of a setting.
type settingVersion struct {
	store.SettingKey
	version int64
}

func newDamage() damage {
	return damage{dead: map[store.DeadKey]bool{}, replies: map[store.RequestKey]bool{}, settings: map[settingVersion]bool{}, messages: map[string]bool{}}
}

// decide decides whether a row is damaged. The decision for a row never changes.
func decide[K comparable](s *Oracle, known map[K]bool, key K, odds float64) (bad, fresh bool) {
	bad, decided := known[key]
	if decided || s.Healed || !s.Has(scenario.Damage) {
		return bad, false
	}
	known[key] = s.Chance(odds)
	return known[key], known[key]
}

// DamageMessage damages a message to another shard if no execution waits for its effect. Such
// messages are signals and starts that an entity sends, and cancels.
func (s *Oracle) DamageMessage(row *store.MessageRow) {
	m := &row.Message
	lone := m.Kind == model.MessageCancel || (m.Kind == model.MessageSignal || m.Kind == model.MessageStart && m.Task == nil) && m.From.Run.IsZero()
	if !s.Has(scenario.Damage) || row.Damaged != nil || !lone || m.RequestID != "" {
		return
	}
	raw := damagedBody(row)
	bad, fresh := decide(s, s.damage.messages, raw, s.Plan.BadMessages)
	if fresh {
		s.Hurt(scenario.FaultBadMessage)
	}
	if bad {
		row.Message, row.Damaged = model.Message{}, &model.Damaged{Raw: []byte(raw), Why: "the body is no message"}
	}
}

// damagedBody returns the body that a message has when it is damaged.
func damagedBody(row *store.MessageRow) string {
	return fmt.Sprintf("damaged message %d from shard %d to shard %d", row.Seq, row.From, row.To)
}

// isMessageAside reports whether a row of an inbox is a damaged message that is set aside.
func (s *Oracle) isMessageAside(row *store.InboxRow) bool {
	return row.Message.Kind == model.MessageNothing && s.damage.messages[string(row.Message.Input.Data)]
}

// IsDeadDamaged decides whether a dead task cannot be read.
func (s *Oracle) IsDeadDamaged(key store.DeadKey) bool {
	bad, fresh := decide(s, s.damage.dead, key, s.Plan.BadDead)
	if fresh {
		s.Hurt(scenario.FaultBadDead)
	}
	return bad
}

// KnowsDamage reports whether a node has noticed that a dead task cannot be read.
func (s *Oracle) KnowsDamage(x *DeadTask) bool { return s.damage.dead[x.key] }

// DamageReply damages a remembered answer to a request of a user, unless the request is for an
// entity: the oracle needs the answers of entities for its checks.
func (s *Oracle) DamageReply(r *store.Reply) {
	if !s.Has(scenario.Damage) || r.Address.IsEntity() || !s.isOfUser(r.RequestKey) {
		return
	}
	bad, fresh := decide(s, s.damage.replies, r.RequestKey, s.Plan.BadReplies)
	if fresh {
		s.Hurt(scenario.FaultBadReply)
	}
	if bad {
		r.Damaged, r.Body = &model.Damaged{Raw: r.Body, Why: "the body is no answer"}, nil
	}
}

// isOfUser reports whether a user has made a request under the id.
func (s *Oracle) isOfUser(k store.RequestKey) bool {
	for _, o := range s.Ops {
		if o.Message.RequestID == k.ID && o.Message.To == k.Address {
			return true
		}
	}
	return false
}

// IsSettingDamaged decides whether a version of a setting cannot be read. fresh says that no node
// has noticed it before.
func (s *Oracle) IsSettingDamaged(x *store.Setting) (bad, fresh bool) {
	switch x.Kind {
	case scenario.SettingLimit, scenario.SettingBreaker, scenario.SettingState, scenario.SettingPage:
	default:
		return false, false
	}
	if x.Deleted {
		return false, false
	}
	if bad, fresh = decide(s, s.damage.settings, settingVersion{x.SettingKey, x.Version}, s.Plan.BadSettings); fresh {
		s.Hurt(scenario.FaultBadSetting)
	}
	return bad, fresh
}

// WasSettingDamaged reports whether an earlier call of IsSettingDamaged has decided that a version
// of a setting cannot be read. It decides nothing itself.
func (s *Oracle) WasSettingDamaged(x *store.Setting) bool {
	return s.damage.settings[settingVersion{x.SettingKey, x.Version}]
}

// ExcusesCorrupt reports whether a user may get an error for a request because a row is damaged,
// and records that.
func (s *Oracle) ExcusesCorrupt(o *Op, err error) bool {
	m := &o.Message
	if !fault.Is(err, fault.Corrupt) {
		return false
	}
	if d := m.DeadTask; d != nil && s.damage.dead[store.DeadKey{RunKey: store.RunKey{Shard: s.ShardOf(d.Ref.Address), Run: d.Ref.Run}, Task: d.Ref.ID}] {
		s.Did(scenario.OpDeadUnread)
		o.Refused = err
		return true
	}
	if s.damage.replies[store.RequestKey{Shard: s.ShardOf(m.To), Address: m.To, ID: m.RequestID}] {
		s.Did(scenario.OpReplyUnread)
		o.Unknown = true
		return true
	}
	return false
}
