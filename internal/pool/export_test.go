package pool

// WithMemory has the pool ask level how full the memory is.
func (c Config) WithMemory(level func() float64) Config {
	c.memory, c.collect = level, func() {}
	return c
}

// WithCollector has the pool call collect for the garbage to be collected.
func (c Config) WithCollector(collect func()) Config {
	c.collect = collect
	return c
}

// Gate is a gate, for tests of its rule.
type Gate struct{ g gate }

// NewGate makes a gate with marks.
func NewGate(high, low float64) *Gate { return &Gate{gate{high: high, low: low}} }

// Level says how high it stands, and reports whether the gate is shut.
func (g *Gate) Level(v float64) bool {
	g.g.level(v)
	return g.g.shut
}
