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

func TestVerbs(t *testing.T) {
	t.Parallel()
	none(t, checkVerbs(ours(t)))
}

func TestCheckVerbs(t *testing.T) {
	t.Parallel()
	m := parse(t, map[string]string{
		"a/a.go":      "package a\nfunc freed() {}\nfunc (x) told(n int) {}\nfunc closed() bool { return false }\nfunc feed() {}\nfunc noteFreed() {}\nfunc Freed() {}\n",
		"a/a_test.go": "package a\nfunc freed() {}\n",
	})
	same(t, checkVerbs(m), "a/a.go:2: the function freed acts: name it by a verb", "a/a.go:3: the function told acts: name it by a verb", "a/a.go:7: the function Freed acts: name it by a verb")
}
