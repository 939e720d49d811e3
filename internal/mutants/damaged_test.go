package mutants

// damaged are bugs in how the engine sets aside rows that it cannot read.
var damaged = []mutant{
	{
		name:  "an unreadable message holds back the messages behind it",
		file:  "internal/engine/lane/mail.go",
		old:   "			l.mail.aside.pairs = append(l.mail.aside.pairs, p)\n",
		new:   "",
		tests: [][]string{laneTest("TestDamagedMessagesAreSetAside$")},
	},
	{
		name:  "a message that cannot be read is dropped",
		file:  "internal/engine/lane/aside.go",
		old:   "	b.batch.Deferred = append(b.batch.Deferred, row)\n",
		new:   "	_ = row\n",
		tests: [][]string{laneTest("TestDamagedMessagesAreSetAside$")},
	},
	{
		name:  "a message of a newer build becomes a dead task",
		file:  "internal/engine/lane/aside.go",
		old:   "	if !d.Newer {\n		row.NotBefore",
		new:   "	if true {\n		row.NotBefore",
		tests: [][]string{laneTest("TestNewerMessageWaitsForTheUpgrade$")},
	},
	{
		name:  "an acknowledged call counts as a repetition when it comes back",
		file:  "internal/engine/lane/aside.go",
		old:   "if m.OneWay && body.Newer {",
		new:   "if m.OneWay && body.Newer && false {",
		tests: [][]string{laneTest("TestDamagedItemsAreSetAside$")},
	},
	{
		name:  "the cursor stays behind a refused batch that sets something aside",
		file:  "internal/engine/lane/careful.go",
		old:   "	if len(first) == 0 && freed {",
		new:   "	if len(first) == 0 {",
		tests: [][]string{laneTest("TestSetAsideIsRefused$")},
	},
	{
		name:  "an incomplete page counts as read",
		file:  "internal/engine/lane/load.go",
		old:   "if !store.Whole(r.Err) && (",
		new:   "if !store.Whole(r.Err) && !fault.Is(r.Err, fault.Corrupt) && (",
		tests: [][]string{laneTest("TestPagesWithoutRowsThatCannotBeRead$")},
	},
	{
		name:  "a page without unreadable rows is read again and again",
		file:  "internal/engine/lane/load.go",
		old:   "if !store.Whole(r.Err) && (",
		new:   "if r.Err != nil && (",
		tests: [][]string{laneTest("TestPagesWithoutRowsThatCannotBeRead$")},
	},
	{
		name:  "a timer without an id spoils its page",
		file:  "internal/store/sqlite/recovery.go",
		old:   "			case err != nil:\n				w.skipped.Note(err)\n",
		new:   "			case err != nil:\n				return err\n",
		tests: [][]string{{"./internal/store/sqlite", "-run", "TestRowsWithoutIDsSpoilNoPage$"}},
	},
	{
		name:  "an unreadable body is handed out as a readable one",
		file:  "internal/store/sqlite/mail.go",
		old:   "		return m, model.Damage(sealed, corrupt(err, row, args...))\n",
		new:   "		return m, nil\n",
		tests: [][]string{{"./internal/store/sqlite", "-run", "TestConformance$/damaged"}},
	},
}
