package notify

// Several passes hints through all of its hubs. A receiver may get a hint from each of them.
type Several []Hub

// Publish publishes through every hub.
func (s Several) Publish(h Hint) {
	for _, hub := range s {
		hub.Publish(h)
	}
}

// Subscribe subscribes to every hub.
func (s Several) Subscribe(fn func(Hint)) (unsubscribe func()) {
	ends := make([]func(), len(s))
	for i, hub := range s {
		ends[i] = hub.Subscribe(fn)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}
