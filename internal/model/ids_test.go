package model_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/perdure/perdure/internal/model"
)

// The shard of an address is part of the stored format. If this test fails, the function is wrong,
// not the test: a store that was written with the old function cannot be read with the new one.
func TestShardNeverChanges(t *testing.T) {
	t.Parallel()

	long := strings.Repeat("k", 512)
	for _, v := range []struct {
		tenant, workflow, key string
		of1, of16, of256      model.ShardID
		of1000, of4096        model.ShardID
	}{
		{"", "", "", 0, 9, 89, 761, 1625},
		{"default", "order", "1", 0, 14, 222, 110, 478},
		{"default", "order", "2", 0, 3, 227, 171, 2019},
		{"default", "order", "", 0, 9, 185, 217, 953},
		{"default", "", "order", 0, 5, 213, 437, 725},
		{"a", "b", "c", 0, 0, 128, 88, 2944},
		{"ab", "c", "", 0, 4, 164, 636, 2980},
		{"", "", "\x00", 0, 9, 57, 929, 1337},
		{"", "\x00", "", 0, 0, 144, 376, 3728},
		{"mandant", "größe", "schlüssel-ß", 0, 15, 31, 639, 3615},
		{"t", "w", "\xff\xfe", 0, 10, 234, 770, 1514},
		{"default", "wf", long, 0, 10, 186, 978, 1466},
	} {
		a := model.Address{Tenant: v.tenant, Type: v.workflow, Key: v.key}
		got := [...]model.ShardID{a.Shard(1), a.Shard(16), a.Shard(256), a.Shard(1000), a.Shard(model.MaxShards)}
		want := [...]model.ShardID{v.of1, v.of16, v.of256, v.of1000, v.of4096}
		if got != want {
			t.Errorf("shards of %q in 1, 16, 256, 1000, 4096 = %v, want %v", a, got, want)
		}
	}
}

func TestShardTellsPartsApart(t *testing.T) {
	t.Parallel()
	// The parts are length-prefixed, so an address changes if a character moves from one part to
	// the next.
	a := model.Address{Tenant: "t", Type: "ab", Key: "c"}
	b := model.Address{Tenant: "t", Type: "a", Key: "bc"}
	if a.Shard(model.MaxShards) == b.Shard(model.MaxShards) {
		t.Errorf("%q and %q have the same shard: parts are not told apart", a, b)
	}
}

func TestShardsAreBalanced(t *testing.T) {
	t.Parallel()
	const shards, keys = 256, 256 * 200
	var n [shards]int
	for i := range keys {
		n[model.Address{Tenant: model.DefaultTenant, Type: "order", Key: numberText(i)}.Shard(shards)]++
	}
	for s, count := range n {
		if count < 120 || count > 300 { // 200 expected; six standard deviations are 85
			t.Errorf("shard %d has %d of %d keys, want about %d", s, count, keys, keys/shards)
		}
	}
}

func numberText(i int) string {
	return "order-" + strings.Repeat("0", i%3) + string(rune('a'+i%26)) + itoa(i)
}

func itoa(i int) string {
	if i < 10 {
		return string(rune('0' + i))
	}
	return itoa(i/10) + string(rune('0'+i%10))
}

func TestShardIsInRange(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := genAddress.Draw(t, "address")
		n := rapid.IntRange(1, model.MaxShards).Draw(t, "n")
		if s := a.Shard(n); int(s) >= n || s != a.Shard(n) {
			t.Fatalf("shard of %q in %d = %d", a, n, s)
		}
	})
}

func TestRunIDText(t *testing.T) {
	t.Parallel()
	for _, v := range []struct {
		id   model.RunID
		text string
	}{
		{model.RunID{}, "run_00000000000000000000000000"},
		{model.RunID{15: 1}, "run_00000000000000000000000004"},
		{model.RunID{0x01, 0x93, 0x2c, 0x5a, 0xff, 0x00, 0x70, 0x00, 0x80, 1, 2, 3, 4, 5, 6, 7}, "run_069jrpqz01r01001081g81860w"},
	} {
		if got := v.id.String(); got != v.text {
			t.Errorf("String(%x) = %q, want %q", v.id, got, v.text)
		}
		back, err := model.ParseRunID(v.text)
		if err != nil || back != v.id {
			t.Errorf("ParseRunID(%q) = %v, %v, want %v", v.text, back, err, v.id)
		}
	}

	if got := (model.NodeID{15: 1}).String(); got != "node_00000000000000000000000004" {
		t.Errorf("node id = %q", got)
	}
	if !(model.NodeID{}).IsZero() || (model.NodeID{1}).IsZero() || !(model.RunID{}).IsZero() || (model.RunID{1}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestRunIDRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id, other := genID.Draw(t, "id"), genID.Draw(t, "other")
		back, err := model.ParseRunID(id.String())
		if err != nil || back != id {
			t.Fatalf("ParseRunID(%q) = %v, %v", id, back, err)
		}
		if got, want := id.Compare(other), strings.Compare(id.String(), other.String()); got != want {
			t.Fatalf("%s and %s: bytes compare %d, texts compare %d", id, other, got, want)
		}
	})
}

func TestParseRunIDRejects(t *testing.T) {
	t.Parallel()
	good := model.RunID{0x01, 0x93, 15: 0xff}.String()
	if _, err := model.ParseRunID(good); err != nil {
		t.Fatal(err)
	}

	for name, text := range map[string]string{
		"empty":                "",
		"only the prefix":      "run_",
		"no prefix":            good[4:],
		"prefix of a node":     "node_" + good[4:],
		"upper case":           strings.ToUpper(good),
		"upper case body":      "run_" + strings.ToUpper(good[4:]),
		"too short":            good[:len(good)-1],
		"too long":             good + "0",
		"bits beyond the end":  good[:len(good)-1] + "z",
		"letter i":             good[:10] + "i" + good[11:],
		"letter l":             good[:10] + "l" + good[11:],
		"letter o":             good[:10] + "o" + good[11:],
		"letter u":             good[:10] + "u" + good[11:],
		"newline inside":       good[:10] + "\n" + good[11:],
		"newlines as filler":   good[:20] + strings.Repeat("\n", 10),
		"carriage return":      good[:len(good)-1] + "\r",
		"space before":         " " + good,
		"space behind":         good + " ",
		"padding":              good[:len(good)-1] + "=",
		"NUL":                  good[:len(good)-1] + "\x00",
		"not UTF-8":            good[:len(good)-1] + "\xff",
		"UUID":                 "0193-0000-0000-0000-00000000",
		"multi-byte character": good[:len(good)-2] + "é",
	} {
		if id, err := model.ParseRunID(text); err == nil {
			t.Errorf("%s: ParseRunID(%q) = %v, want an error", name, text, id)
		}
	}

	rapid.Check(t, func(t *rapid.T) {
		text := genText.Draw(t, "text")
		if id, err := model.ParseRunID(text); err == nil && id.String() != text {
			t.Fatalf("%q was read as %s", text, id)
		}
	})
}

func TestAddressText(t *testing.T) {
	t.Parallel()
	a := model.Address{Tenant: "acme", Type: "order", Key: "42"}
	if got := a.String(); got != "acme/order/42" {
		t.Errorf("String = %q", got)
	}
	if a.IsZero() || !(model.Address{}).IsZero() {
		t.Error("IsZero is wrong")
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for k := model.EventStarted; k <= model.LastEventKind; k++ {
		if name := k.String(); name == "unknown" && !k.Known() {
			continue // a number that was never given out
		} else if name == "unknown" || seen[name] || !k.Known() {
			t.Errorf("event kind %d is called %q, known %v", k, name, k.Known())
		} else {
			seen[name] = true
		}
	}

	for _, k := range []model.EventKind{0, model.LastEventKind + 1, 255} {
		if k.Known() || k.String() != "unknown" {
			t.Errorf("event kind %d is called %q, known %v", k, k, k.Known())
		}
	}

	seen = map[string]bool{}
	for k := model.MessageStart; k <= model.LastMessageKind; k++ {
		if k == 16 || k == 18 || k == 19 {
			continue // a number that other builds use
		}
		if name := k.String(); name == "unknown" || seen[name] || !k.Known() {
			t.Errorf("message kind %d is called %q, known %v", k, name, k.Known())
		} else {
			seen[name] = true
		}
	}

	for _, k := range []model.MessageKind{0, model.LastMessageKind + 1, 255} {
		if k.Known() || k.String() != "unknown" {
			t.Errorf("message kind %d is called %q, known %v", k, k, k.Known())
		}
	}

	for s := model.Running; s <= model.Continued; s++ {
		if back, ok := model.ParseStatus(s.String()); !ok || back != s {
			t.Errorf("ParseStatus(%q) = %v, %v", s, back, ok)
		}
		if s.Closed() != (s != model.Running) {
			t.Errorf("%s: closed is %v", s, s.Closed())
		}
	}

	for _, word := range []string{"", "unknown", "Running", "running ", "run"} {
		if s, ok := model.ParseStatus(word); ok {
			t.Errorf("ParseStatus(%q) = %v, want none", word, s)
		}
	}
}

func TestReasonsAreSentences(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, code := range []model.ReasonCode{
		model.WaitTimer, model.WaitSignal, model.WaitPromise, model.WaitChild, model.WaitStep, model.WaitRetry, model.WaitWorker, model.WaitOwner,
		model.WaitTurn, model.WaitNothing, model.WaitMismatch, model.WaitPoison, model.WaitCorrupt, model.WaitLimit, model.WaitStuck,
	} {
		s := model.Reason{Code: code, Name: "it", Until: 1, Attempt: 2, Detail: "because"}.String()
		if !strings.Contains(s, " ") || seen[s] {
			t.Errorf("%s: %q is no sentence of its own", code, s)
		}
		seen[s] = true
	}
	if got := (model.Reason{Code: "of a later build\n"}).String(); got != `"of a later build\n"` {
		t.Errorf("unknown code = %s", got)
	}
}
