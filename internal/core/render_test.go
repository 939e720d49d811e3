package core_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/perdure/perdure/internal/core"
	"github.com/perdure/perdure/internal/fault"
	"github.com/perdure/perdure/internal/model"
)

// This file prints decisions of the core for transcripts.

func name(id model.RunID) string {
	if id.IsZero() {
		return "none"
	}
	return fmt.Sprintf("run%d", int(id[13])<<16|int(id[14])<<8|int(id[15]))
}

var runText = regexp.MustCompile(`run_[0-9a-z]{26}`)

// plain replaces ids in a text by their short names.
func plain(text string) string {
	text = runText.ReplaceAllStringFunc(text, func(s string) string {
		id, err := model.ParseRunID(s)
		if err != nil {
			return s
		}
		return name(id)
	})
	return strings.ReplaceAll(strings.ReplaceAll(text, "wf/", ""), "\x1f", "/")
}

func linkText(l model.Link) string {
	s := l.Address.Key
	if !l.Run.IsZero() {
		s += "." + name(l.Run)
	}
	if l.ID != "" {
		s += "." + l.ID
	}
	return s
}

func failureText(f *model.Failure) string {
	if f.Kind != "" {
		return fmt.Sprintf("%s(%s)", f.Kind, plain(f.Message))
	}
	return plain(f.Message)
}

func eventText(e *model.Event) string {
	s := fmt.Sprintf("#%d %s %s", e.Seq, since(e.At), e.Kind)
	add := func(format string, args ...any) { s += " " + fmt.Sprintf(format, args...) }
	if e.ID != "" {
		add("%s", plain(e.ID))
	}
	if e.Name != "" && e.Name != e.ID {
		add("%s", e.Name)
	}
	if e.Attempt != 0 {
		add("attempt=%d", e.Attempt)
	}
	if e.Input.Size() > 0 {
		add("input=%s", e.Input.Data)
	}
	if e.Output.Size() > 0 {
		add("output=%s", e.Output.Data)
	}
	if e.Status != 0 {
		add("%s", e.Status)
	}
	if e.Failure != nil {
		add("failure=%q", failureText(e.Failure))
	}
	if e.Due != 0 {
		add("due=%s", since(e.Due))
	}
	if e.Ref != 0 {
		add("ref=#%d", e.Ref)
	}
	if !e.Target.IsZero() {
		add("target=%s", e.Target.Key)
	}
	if !e.Run.IsZero() {
		add("run=%s", name(e.Run))
	}
	if e.Watcher != nil {
		add("watcher=%s", linkText(*e.Watcher))
	}
	if e.RequestID != "" {
		add("request=%s", e.RequestID)
	}
	if e.Policy == model.AbandonChild {
		add("abandon")
	}
	if e.Detached {
		add("detached")
	}

	return s
}

func messageText(m *model.Message) string {
	s := fmt.Sprintf("%s to %s", m.Kind, m.To.Key)
	add := func(format string, args ...any) { s += " " + fmt.Sprintf(format, args...) }
	if !m.ToRun.IsZero() {
		add("run=%s", name(m.ToRun))
	}
	if m.ID != "" {
		add("step=%s", m.ID)
	}
	if m.Name != "" {
		add("name=%s", m.Name)
	}
	if m.Input.Size() > 0 {
		add("input=%s", m.Input.Data)
	}
	if m.Status != 0 {
		add("%s", m.Status)
	}
	if m.Failure != nil {
		add("failure=%q", failureText(m.Failure))
	}
	if m.Reuse != 0 {
		add("reuse=%d", m.Reuse)
	}
	if m.Policy == model.AbandonChild {
		add("abandon")
	}
	if len(m.Labels) > 0 {
		add("labels %s", labelsText(m.Labels))
	}
	if m.From != (model.Link{}) {
		add("from=%s", linkText(m.From))
	}

	return s
}

func reasonText(r *model.Reason) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s%s", r.Code, r.Name, plain(r.Detail)))
}

// decisionText describes a decision completely, one fact per line.
func decisionText(a model.Address, d *core.Decision) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	for i := range d.Events {
		line("%s%s", a.Key, eventText(&d.Events[i]))
	}
	for _, id := range d.StopTimers {
		line("timer stops: %s", plain(id))
	}
	for _, t := range d.StartTimers {
		line("timer starts: %s due=%s", plain(t.ID), since(t.Due))
	}
	if d.StopAll {
		line("all timers stop")
	}

	if d.Mark != nil {
		switch {
		case d.Mark.Blocked != nil:
			line("mark: blocked by %s, parked=%v", reasonText(d.Mark.Blocked), d.Mark.Parked)
		case d.Mark.Parked:
			var waits []string
			for i := range d.Mark.Waits {
				waits = append(waits, reasonText(&d.Mark.Waits[i]))
			}
			line("mark: parked, waits for %s", strings.Join(waits, ", "))
		default:
			line("mark: runnable")
		}
	}

	if o := d.Close; o != nil {
		s := fmt.Sprintf("%s closes: %s at %s, had seen #%d", a.Key, o.Status, since(o.At), o.Seen)
		if o.Output.Size() > 0 {
			s += fmt.Sprintf(", output=%s", o.Output.Data)
		}
		if o.Failure != nil {
			s += fmt.Sprintf(", failure=%q", failureText(o.Failure))
		}
		if !o.Next.IsZero() {
			s += ", next=" + name(o.Next)
		}
		line("%s", s)
	}

	if d.Start != nil {
		line("%s", startText(d))
		for i := range d.Start.Carried {
			line("  carries %s", eventText(&d.Start.Carried[i]))
		}
	}

	for _, id := range d.Deletes {
		line("%s is deleted", name(id))
	}
	for i := range d.Messages {
		line("message: %s", messageText(&d.Messages[i]))
	}
	for i := range d.Replies {
		line("reply to %s: %s", d.Replies[i].RequestID, replyText(&d.Replies[i].Answer))
	}
	if d.Pending {
		line("the answer comes from the code")
	}
	if d.Retry != "" {
		line("the worker is to run %s again", d.Retry)
	}
	if d.Diverged {
		line("diverged: the rest of the turn is dropped")
	}

	return b.String()
}

// replyText describes the answer to a client that has waited for its update.
func replyText(a *model.Answer) string {
	s := fmt.Sprintf("%s %s", name(a.Run), a.Status)
	if a.Output.Size() > 0 {
		s += fmt.Sprintf(", output=%s", a.Output.Data)
	}
	if a.Failure != nil {
		s += fmt.Sprintf(", failure=%q", failureText(a.Failure))
	}
	return s
}

func startText(d *core.Decision) string {
	s := d.Start
	text := fmt.Sprintf("%s begins: %s at %s", s.Address.Key, name(s.Run), since(s.At))
	if s.Input.Size() > 0 {
		text += fmt.Sprintf(", input=%s", s.Input.Data)
	}
	if s.RequestID != "" {
		text += ", request=" + s.RequestID
	}
	if !d.Replaces.IsZero() {
		text += ", replaces " + name(d.Replaces)
	}
	if s.Parent != (model.Link{}) {
		text += ", parent=" + linkText(s.Parent)
	}
	if s.OnParentClose == model.AbandonChild {
		text += ", abandon"
	}
	if len(s.Labels) > 0 {
		text += ", labels " + labelsText(s.Labels)
	}
	if !s.First.IsZero() {
		text += fmt.Sprintf(", first=%s, previous=%s", name(s.First), name(s.Previous))
	}
	if f := &s.Source; !f.IsZero() {
		text += fmt.Sprintf(", began at %s with %d events of %s.%s", since(s.Began), f.Position, f.Address.Key, name(f.Run))
	}

	return text
}

func labelsText(labels []model.Label) string {
	var texts []string
	for _, l := range labels {
		texts = append(texts, l.Name+"="+l.Value)
	}
	return strings.Join(texts, " ")
}

func answerText(a model.Answer) string {
	if err := core.RefusalOf(a); err != nil {
		return "refused: " + errorText(err) + "\n"
	}
	if a.Run.IsZero() {
		return "answer: done\n"
	}
	s := fmt.Sprintf("answer: %s %s", name(a.Run), a.Status)
	if a.Existing {
		s += ", existing"
	}
	return s + "\n"
}

func errorText(err error) string {
	var f *fault.Error
	if !errors.As(err, &f) {
		return "UNCLASSIFIED " + err.Error()
	}
	return fmt.Sprintf("%s: %s", f.Kind, plain(err.Error()))
}

// stateText describes the state of the current run in one line.
func stateText(x *core.Execution) string {
	if x == nil {
		return "state: none\n"
	}
	if !x.Open() {
		return fmt.Sprintf("state: %s %s\n", name(x.Start.Run), x.Outcome.Status)
	}
	s := fmt.Sprintf("state: %s %s, next #%d", name(x.Start.Run), x.Outcome.Status, x.Next)

	add := func(what string, items []string) {
		if len(items) > 0 {
			s += "; " + what + " " + strings.Join(items, " ")
		}
	}

	var timers, signals, updates []string
	for _, t := range x.Timers() {
		timers = append(timers, plain(t.ID)+"@"+since(t.Due))
	}
	slices.Sort(timers)
	f := core.FactsOf(x)
	for _, seq := range f.Signals {
		signals = append(signals, fmt.Sprintf("#%d", seq))
	}
	add("timers", timers)
	add("signals", signals)
	if labels := x.Labels(); len(labels) > 0 {
		s += "; labels " + labelsText(labels)
	}
	add("children", f.Children)
	add("settled", f.Settled)
	add("waits for answers to", f.Calls)
	for _, seq := range f.Updates {
		updates = append(updates, fmt.Sprintf("#%d", seq))
	}
	add("updates", updates)
	add("values", f.States)
	if x.Pin != "" {
		s += "; pinned to " + x.Pin
	}
	if f.Watchers > 0 {
		s += fmt.Sprintf("; watchers %d", f.Watchers)
	}
	if x.Canceling > 0 {
		s += fmt.Sprintf("; canceling since #%d", x.Canceling)
	}
	if x.Parked {
		s += "; parked"
	}
	if x.Paused != nil {
		s += "; " + reasonText(x.Paused)
	}
	if x.Blocked != nil {
		s += "; blocked by " + reasonText(x.Blocked)
	}

	return s + "\n"
}
