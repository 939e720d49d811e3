package postgres

// What the tests of the package need to know about its tables.
var (
	HotTables   = hotTables
	SmallTables = smallTables
)
