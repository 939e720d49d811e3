package model

import (
	"encoding/binary"
	"slices"
)

// Stored values are encoded by hand, because reflection took a twentieth of the CPU time of a
// workflow. The CBOR tags of the types describe the same bytes, and decoding uses them.
// TestAppendWritesWhatTheTagsSay checks that both agree.

// AppendEvent appends the stored body of an event. Position, time and kind are separate columns.
func AppendEvent(dst []byte, e *Event) []byte {
	m := beginMap(dst)
	m.text(1, e.ID)
	m.text(2, e.Name)
	m.int(3, int64(e.Attempt))
	m.payload(4, &e.Input)
	m.payload(5, &e.Output)
	m.failure(6, e.Failure)
	m.int(7, int64(e.Due))
	m.int(8, e.Ref)
	m.address(9, &e.Target)
	m.id(10, e.Run)
	m.int(11, int64(e.Status))
	m.link(12, e.Watcher)
	m.text(13, e.RequestID)
	m.int(14, int64(e.Policy))
	m.text(15, e.Position)
	m.bool(16, e.Detached)
	m.bool(21, e.Seen)
	m.task(17, e.Task)
	m.text(18, e.Worker)

	if len(e.Locks) > 0 {
		m.key(19)
		m.dst = appendHead(m.dst, majorArray, uint64(len(e.Locks)))
		for i := range e.Locks {
			m.dst = appendAddress(m.dst, &e.Locks[i])
		}
	}

	m.text(20, e.Section)
	return m.end()
}

// AppendStart appends the stored body of a start. Address, run and time are separate columns.
func AppendStart(dst []byte, s *Start) []byte {
	m := beginMap(dst)
	m.payload(1, &s.Input)
	m.text(2, s.RequestID)
	m.link(3, &s.Parent)
	m.int(4, int64(s.OnParentClose))
	m.id(5, s.First)
	m.id(6, s.Previous)
	m.carriedEvents(7, s.Carried)
	m.data(8, s.Origin)
	m.labels(12, s.Labels)
	m.int(16, int64(s.Began))
	m.seeds(17, s.Seeds)
	m.id(18, s.Identity)
	m.source(19, &s.Source)
	m.task(20, s.Task)
	m.text(21, s.Worker)
	m.id(22, s.Replaced)
	m.runs(23, s.Earlier)
	m.text(24, s.Trace)
	m.int(25, int64(s.Begins))
	m.int(26, int64(s.Expires))
	m.terms(27, s.Terms)
	m.int(28, int64(s.Attempt))
	m.failure(29, s.Cause)

	return m.end()
}

// AppendOutcome appends the stored body of an outcome. Status and time are separate columns.
func AppendOutcome(dst []byte, o *Outcome) []byte {
	m := beginMap(dst)
	m.payload(1, &o.Output)
	m.failure(2, o.Failure)
	m.int(3, o.Seen)
	m.id(4, o.Next)
	m.int(5, int64(o.Leaves))
	return m.end()
}

// AppendMessage appends the stored body of a message.
func AppendMessage(dst []byte, v *Message) []byte {
	m := beginMap(dst)
	m.key(1)
	m.dst = appendInt(m.dst, int64(v.Kind))
	m.key(2)
	m.dst = appendAddress(m.dst, &v.To)
	m.id(3, v.ToRun)
	m.link(4, &v.From)
	m.text(5, v.ID)
	m.text(6, v.Name)
	m.payload(7, &v.Input)
	m.failure(8, v.Failure)
	m.int(9, int64(v.Status))
	m.text(10, v.RequestID)
	m.int(11, int64(v.Reuse))
	m.int(12, int64(v.Policy))

	if len(v.With) > 0 {
		m.key(13)
		m.dst = appendHead(m.dst, majorArray, uint64(len(v.With)))
		for i := range v.With {
			m.dst = AppendEvent(m.dst, &v.With[i])
		}
	}

	m.id(14, RunID(v.Node))
	m.labels(18, v.Labels)
	m.past(20, v.Past)
	m.runs(21, v.Runs)
	m.bool(22, v.Keep)
	m.task(23, v.Task)
	m.report(24, v.Report)
	m.deadTaskOrder(30, v.DeadTask)
	m.id(31, v.Fresh)
	m.text(32, v.Trace)
	m.write(40, v.Write)
	m.text(41, v.Section)
	m.bool(42, v.OneWay)
	m.bool(43, v.Brief)
	m.int(44, v.Epoch)
	m.int(45, int64(v.Deaths))
	m.id(46, RunID(v.By))
	m.data(48, v.Asked)
	m.bool(60, v.Force)
	m.link(61, v.Parent)
	m.terms(62, v.Terms)
	m.int(64, int64(v.Lone))
	m.data(65, v.Exported)
	m.id(66, v.Linked)
	m.bool(67, v.Watches)
	m.int(68, int64(v.Lost))

	return m.end()
}

// AppendEntity appends the stored body of an entity. Address, version and time are separate
// columns.
func AppendEntity(dst []byte, n *Entity) []byte {
	m := beginMap(dst)
	m.payload(1, &n.State)
	m.bool(2, n.Exists)
	m.int(3, int64(n.Created))
	m.link(4, &n.Holder)
	m.int(5, int64(n.Held))
	m.int(6, n.Epoch)
	m.int(7, int64(n.Expires))
	m.int(8, int64(n.Alarm))
	if len(n.Log) > 0 {
		m.key(9)
		m.dst = appendHead(m.dst, majorArray, uint64(len(n.Log)))
		for i := range n.Log {
			m.dst = appendRecord(m.dst, &n.Log[i])
		}
	}
	return m.end()
}

// appendRecord appends an operation in the log of an entity.
func appendRecord(dst []byte, r *OperationRecord) []byte {
	m := beginMap(dst)
	m.text(1, r.Name)
	m.int(2, int64(r.At))
	m.text(3, r.RequestID)
	m.link(4, &r.From)
	m.failure(5, r.Failure)
	m.payload(6, &r.Input)
	m.int(7, int64(r.Bytes))
	return m.end()
}

// AppendReasons appends the stored form of the reasons why a run waits.
func AppendReasons(dst []byte, rs []Reason) []byte {
	if rs == nil {
		return append(dst, cborNull)
	}
	dst = appendHead(dst, majorArray, uint64(len(rs)))
	for i := range rs {
		m := beginMap(dst)
		m.key(1)
		m.dst = appendText(m.dst, string(rs[i].Code))
		m.text(2, rs[i].Name)
		m.int(3, int64(rs[i].Until))
		m.int(4, int64(rs[i].Attempt))
		m.text(5, rs[i].Detail)
		dst = m.end()
	}
	return dst
}

// AppendAnswer appends the stored form of an answer.
func AppendAnswer(dst []byte, a *Answer) []byte {
	m := beginMap(dst)
	m.id(1, a.Run)
	m.int(2, int64(a.Status))
	m.bool(3, a.Existing)
	m.failure(4, a.Failure)
	m.payload(5, &a.Output)

	if u := a.For; u != nil {
		m.key(6)
		in := beginMap(m.dst)
		in.key(1)
		in.dst = appendInt(in.dst, int64(u.Kind))
		in.text(2, u.Name)
		in.bool(3, u.OneWay)
		in.data(4, u.Sum)
		m.dst = in.end()
	}

	m.int(7, a.Requeue)
	return m.end()
}

// AppendPayload appends the stored form of a payload that is not part of another value.
func AppendPayload(dst []byte, p *Payload) []byte {
	m := beginMap(dst)
	m.data(1, p.Data)
	m.text(2, p.Encoding)
	return m.end()
}

// AppendDeadTask appends the stored form of a dead task.
func AppendDeadTask(dst []byte, d *DeadTask) []byte {
	m := beginMap(dst)
	m.address(1, &d.Address)
	m.task(2, &d.Spec)
	m.payload(3, &d.Input)
	m.int(4, int64(d.Scheduled))
	m.int(5, int64(d.At))
	m.int(6, int64(d.Attempts))

	if len(d.Failed) > 0 {
		m.key(7)
		m.dst = appendHead(m.dst, majorArray, uint64(len(d.Failed)))
		for i := range d.Failed {
			a := &d.Failed[i]
			in := beginMap(m.dst)
			in.int(1, int64(a.Attempt))
			in.int(2, int64(a.At))
			in.text(3, a.Worker)
			in.failure(4, &a.Failure)
			m.dst = in.end()
		}
	}

	m.int(8, int64(d.LeftOut))
	m.failure(9, d.Failure)
	m.text(10, d.Fingerprint)

	if !d.Requeued.IsZero() {
		m.key(11)
		in := beginMap(m.dst)
		in.int(1, int64(d.Requeued.At))
		in.address(2, &d.Requeued.Address)
		in.id(3, d.Requeued.Run)
		in.data(4, d.Requeued.Input)
		m.dst = in.end()
	}

	return m.end()
}

// Major types of CBOR, in the upper three bits of the first byte of an item.
const (
	majorUnsigned = 0 << 5
	majorNegative = 1 << 5
	majorBytes    = 2 << 5
	majorText     = 3 << 5
	majorArray    = 4 << 5
	majorMap      = 5 << 5
	cborTrue      = 0xf5
	cborNull      = 0xf6
)

// appendHead appends the head of an item: its type, and its length or value.
func appendHead(dst []byte, major byte, n uint64) []byte {
	switch {
	case n < 24:
		return append(dst, major|byte(n))
	case n < 1<<8:
		return append(dst, major|24, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, major|25), uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32(append(dst, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, major|27), n)
}

func appendInt(dst []byte, n int64) []byte {
	if n < 0 {
		return appendHead(dst, majorNegative, uint64(-(n + 1)))
	}
	return appendHead(dst, majorUnsigned, uint64(n))
}

func appendText(dst []byte, v string) []byte {
	return append(appendHead(dst, majorText, uint64(len(v))), v...)
}

func appendAddress(dst []byte, a *Address) []byte {
	m := beginMap(dst)
	m.text(1, a.Tenant)
	m.text(2, a.Type)
	m.text(3, a.Key)
	return m.end()
}

// appender writes a map whose keys are small numbers. It leaves out fields that are zero, and fills
// in the number of fields at the end. The head of a map with up to 23 fields is one byte. For a map
// with more fields, which only a test writes, everything after the head moves by one byte.
type appender struct {
	dst  []byte
	head int
	n    byte
}

func beginMap(dst []byte) appender { return appender{dst: append(dst, majorMap), head: len(dst)} }

func (m *appender) end() []byte {
	if m.n < 24 {
		m.dst[m.head] = majorMap | m.n
		return m.dst
	}
	m.dst = slices.Insert(m.dst, m.head+1, m.n)
	m.dst[m.head] = majorMap | 24
	return m.dst
}

func (m *appender) key(k byte) {
	m.dst = appendHead(m.dst, majorUnsigned, uint64(k))
	m.n++
}

func (m *appender) int(k byte, v int64) {
	if v != 0 {
		m.key(k)
		m.dst = appendInt(m.dst, v)
	}
}

func (m *appender) bool(k byte, v bool) {
	if v {
		m.key(k)
		m.dst = append(m.dst, cborTrue)
	}
}

func (m *appender) text(k byte, v string) {
	if v != "" {
		m.key(k)
		m.dst = appendText(m.dst, v)
	}
}

func (m *appender) data(k byte, v []byte) {
	if len(v) > 0 {
		m.key(k)
		m.dst = append(appendHead(m.dst, majorBytes, uint64(len(v))), v...)
	}
}

func (m *appender) id(k byte, v RunID) {
	if !v.IsZero() {
		m.key(k)
		m.dst = append(append(m.dst, majorBytes|byte(len(v))), v[:]...)
	}
}

func (m *appender) payload(k byte, p *Payload) {
	if p.Data == nil && p.Encoding == "" {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.data(1, p.Data)
	in.text(2, p.Encoding)
	m.dst = in.end()
}

func (m *appender) failure(k byte, f *Failure) {
	if f == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.text(1, f.Kind)
	in.text(2, f.Type)
	in.text(3, f.Message)
	in.text(4, f.Stack)
	in.bool(5, f.Permanent)
	m.dst = in.end()
}

func (m *appender) address(k byte, a *Address) {
	if a.IsZero() {
		return
	}
	m.key(k)
	m.dst = appendAddress(m.dst, a)
}

func (m *appender) link(k byte, l *Link) {
	if l == nil || *l == (Link{}) {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.address(1, &l.Address)
	in.key(2) // written even when it is zero
	in.dst = append(append(in.dst, majorBytes|byte(len(l.Run))), l.Run[:]...)
	in.text(3, l.ID)
	m.dst = in.end()
}

func (m *appender) labels(k byte, labels []Label) {
	if len(labels) == 0 {
		return
	}
	m.key(k)
	m.dst = appendHead(m.dst, majorArray, uint64(len(labels)))
	for i := range labels {
		in := beginMap(m.dst)
		in.text(1, labels[i].Name)
		in.text(2, labels[i].Value)
		m.dst = in.end()
	}
}

// carriedEvents writes events together with their kind and time.
func (m *appender) carriedEvents(k byte, events []Event) {
	if len(events) == 0 {
		return
	}
	m.key(k)
	m.dst = appendHead(m.dst, majorArray, uint64(len(events)))
	for i := range events {
		m.pastEvent(events[i].Kind, events[i].At, &events[i])
	}
}

func (m *appender) pastEvent(kind EventKind, at Time, e *Event) {
	in := beginMap(m.dst)
	in.key(1)
	in.dst = appendInt(in.dst, int64(kind))
	in.int(2, int64(at))
	in.key(3)
	m.dst = AppendEvent(in.end(), e)
}

func (m *appender) seeds(k byte, seeds []Seed) {
	if len(seeds) == 0 {
		return
	}
	m.key(k)
	m.dst = appendHead(m.dst, majorArray, uint64(len(seeds)))
	for i := range seeds {
		in := beginMap(m.dst)
		in.int(1, seeds[i].Until)
		in.id(2, seeds[i].Run)
		m.dst = in.end()
	}
}

func (m *appender) source(k byte, s *Source) {
	if s.IsZero() {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.address(1, &s.Address)
	in.id(2, s.Run)
	in.int(3, s.Position)
	m.dst = in.end()
}

func (m *appender) runs(k byte, runs []RunID) {
	if len(runs) == 0 {
		return
	}
	m.key(k)
	m.dst = appendHead(m.dst, majorArray, uint64(len(runs)))
	for i := range runs {
		m.dst = append(append(m.dst, majorBytes|byte(len(runs[i]))), runs[i][:]...)
	}
}

func (m *appender) past(k byte, p *Past) {
	if p == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)

	if len(p.Events) > 0 {
		in.key(1)
		in.dst = appendHead(in.dst, majorArray, uint64(len(p.Events)))
		for i := range p.Events {
			in.pastEvent(p.Events[i].Kind, p.Events[i].At, &p.Events[i].Event)
		}
	}

	in.int(2, int64(p.Began))
	in.seeds(3, p.Seeds)
	in.id(4, p.Identity)
	in.source(5, &p.Source)
	in.data(6, p.Origin)
	in.int(7, p.Next)
	in.int(8, int64(p.Status))
	in.payload(9, &p.Output)
	in.failure(10, p.Failure)
	in.int(11, int64(p.At))
	in.runs(12, p.Earlier)
	in.int(13, int64(p.Begins))
	m.dst = in.end()
}

func (m *appender) task(k byte, t *TaskSpec) {
	if t == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.key(1)
	in.dst = appendText(in.dst, t.Kind)
	in.key(2)
	in.dst = appendText(in.dst, t.Queue)
	in.int(3, int64(t.Priority))
	in.text(4, t.Fair)
	in.int(5, int64(t.Weight))
	in.retry(6, &t.Retry)
	in.int(7, int64(t.ToStart))
	in.int(8, int64(t.ToClose))
	in.int(9, int64(t.Silence))
	in.int(10, int64(t.Total))
	in.int(11, int64(t.Delay))
	in.text(12, t.Breaker)
	in.texts(13, t.Limits)
	in.text(14, t.Trace)

	if o := t.Same; o != nil {
		in.key(15)
		of := beginMap(in.dst)
		of.id(1, o.Run)
		of.text(2, o.Step)
		in.dst = of.end()
	}

	if len(t.Fences) > 0 {
		in.key(16)
		in.dst = appendHead(in.dst, majorArray, uint64(len(t.Fences)))
		for i := range t.Fences {
			f := beginMap(in.dst)
			f.key(1)
			f.dst = appendAddress(f.dst, &t.Fences[i].Entity)
			f.key(2)
			f.dst = appendInt(f.dst, t.Fences[i].Epoch)
			in.dst = f.end()
		}
	}

	m.dst = in.end()
}

func (m *appender) retry(k byte, r *Retry) {
	if r.IsZero() {
		return
	}
	m.key(k)
	m.dst = appendRetry(m.dst, r)
}

func appendRetry(dst []byte, r *Retry) []byte {
	in := beginMap(dst)
	in.int(1, int64(r.MaxAttempts))
	in.int(2, int64(r.Initial))
	in.int(3, int64(r.Max))
	in.int(4, r.Coefficient)
	in.int(5, r.Jitter)
	in.texts(6, r.Final)
	in.bool(7, r.Given)
	return in.end()
}

func (m *appender) terms(k byte, t *Terms) {
	if t == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.int(1, int64(t.Delay))
	in.int(2, int64(t.NotBefore))
	in.int(3, int64(t.Timeout))
	if t.Retry != nil {
		in.key(4)
		in.dst = appendRetry(in.dst, t.Retry)
	}
	m.dst = in.end()
}

func (m *appender) texts(k byte, texts []string) {
	if len(texts) == 0 {
		return
	}
	m.key(k)
	m.dst = appendHead(m.dst, majorArray, uint64(len(texts)))
	for _, t := range texts {
		m.dst = appendText(m.dst, t)
	}
}

func (m *appender) report(k byte, r *TaskReport) {
	if r == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.claim(1, &r.Ref)
	in.payload(2, &r.Output)
	in.failure(3, r.Failure)
	in.int(4, int64(r.RetryAfter))
	in.bool(5, r.Returned)
	in.int(6, int64(r.After))
	in.text(7, r.By)
	m.dst = in.end()
}

func (m *appender) claim(k byte, r *ClaimRef) {
	m.key(k)
	in := beginMap(m.dst)
	in.address(1, &r.Address)
	in.id(2, r.Run)
	in.text(3, r.ID)
	in.int(4, r.Claim)
	m.dst = in.end()
}

func (m *appender) write(k byte, w *TaskWrite) {
	if w == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.claim(1, &w.Ref)
	in.int(2, w.First)

	if len(w.Items) > 0 {
		in.key(3)
		in.dst = appendHead(in.dst, majorArray, uint64(len(w.Items)))
		for i := range w.Items {
			t := &w.Items[i]
			item := beginMap(in.dst)
			item.key(1)
			item.dst = appendInt(item.dst, int64(t.Kind))
			item.text(2, t.Name)
			item.payload(3, &t.Value)
			item.int(4, int64(t.Level))
			item.text(5, t.Text)
			item.int(6, int64(t.At))
			in.dst = item.end()
		}
	}

	in.text(4, w.By)
	m.dst = in.end()
}

func (m *appender) deadTaskOrder(k byte, l *DeadTaskOrder) {
	if l == nil {
		return
	}
	m.key(k)
	in := beginMap(m.dst)
	in.key(1)
	in.dst = appendInt(in.dst, int64(l.Do))

	if l.Ref != (TaskRef{}) {
		in.key(2)
		ref := beginMap(in.dst)
		ref.address(1, &l.Ref.Address)
		ref.id(2, l.Ref.Run)
		ref.text(3, l.Ref.ID)
		in.dst = ref.end()
	}

	in.int(3, l.Count)
	if l.Input != nil {
		in.key(4)
		in.dst = AppendPayload(in.dst, l.Input)
	}

	in.id(5, l.Run)
	in.bool(6, l.Damaged)
	m.dst = in.end()
}
