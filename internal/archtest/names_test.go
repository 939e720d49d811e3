package archtest

import "testing"

func TestSharedTypeNames(t *testing.T) {
	t.Parallel()
	none(t, checkSharedNames(ours(t), engineRoom, maxSharedNames))
}

func TestCheckSharedNames(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"e/a.go":        "package e\ntype Board struct{}\ntype line int\n",
		"e/b/b.go":      "package b\ntype (\n\tBoard struct{}\n\tOnly int\n)\nfunc f() { type line int }\n",
		"e/b/b_test.go": "package b\ntype line int\n",
		"f/f.go":        "package f\ntype Only int\n",
	})

	same(t, checkSharedNames(m, "e", 1))
	same(t, checkSharedNames(m, "e", 0),
		"type Board is declared in e, e/b", "e: packages share 1 type names, at most 0 are allowed: rename one of each pair")
}
