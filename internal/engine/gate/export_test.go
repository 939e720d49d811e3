package gate

// Size is how many limits are kept.
func (g *Gate) Size() int { return len(g.resources) }
