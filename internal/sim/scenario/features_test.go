package scenario

import "testing"

// TestFeatures checks the table of features. With -v it prints the table.
func TestFeatures(t *testing.T) {
	t.Parallel()
	t.Logf("\n%s", DescribeFeatures())
	names := map[string]bool{}
	for i := range table {
		r := &table[i]
		if r.feature != 1<<i || r.name == "" || names[r.name] || r.about == "" {
			t.Errorf("row %d of the table: feature %b, name %q", i, r.feature, r.name)
		}
		names[r.name] = true
	}

	// Every feature occurs in some seed, and only together with the features that it needs.
	seen := Feature(0)
	for seed := range uint64(24 * 7 * 11) {
		on := New(seed, Options{}).features
		seen |= on
		for i := range table {
			if r := &table[i]; on&r.feature != 0 && (on&r.needs != r.needs || on&r.excludes != 0) {
				t.Errorf("seed %d has %s, and %s needs %s and excludes %s", seed, on, r.name, r.needs, r.excludes)
			}
		}
	}
	if seen != 1<<allFeatures-1 {
		t.Errorf("no seed has %s", (1<<allFeatures-1)&^seen)
	}
}

func TestForcedFeatures(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Features{
		"lending":         {On: Lending | Tasks},
		"labels,-tasks":   {On: Labels, Off: Tasks | DeadOrders | Gates | SharedGates | Lending | Lingering},
		"shared-gates":    {On: SharedGates | Gates | Tasks | Retention, Off: ClockJumps},
		"-large-reports,": {Off: LargeReports},
	} {
		f, err := ParseFeatures(text)
		if err != nil || f != want {
			t.Errorf("%q: on %s off %s, %v", text, f.On, f.Off, err)
		}
		for seed := range uint64(24) {
			if on := New(seed, Options{Features: f}).features; on&f.On != f.On || on&f.Off != 0 {
				t.Errorf("%q: seed %d has %s", text, seed, on)
			}
		}
	}

	for _, text := range []string{"unheard-of", "lending,-tasks", "gates,clock-jumps"} {
		if f, err := ParseFeatures(text); err == nil {
			t.Errorf("%q: on %s off %s", text, f.On, f.Off)
		}
	}
}
