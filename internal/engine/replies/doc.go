// Package replies holds the streams of a node. A view of an entity may answer its caller with a
// stream, which is a sequence of items.
//
// A stream is in the memory of the node that owns the entity. It has one caller, which takes items,
// and one worker, which sends them. The caller and the worker may be in other processes: the engine
// brings their requests to the owner. Items are numbered. The buffer of a stream keeps an item
// until the caller says that it has the item. The buffer ignores an item that it has received
// before. So either side may repeat a request whose answer was lost, and the caller gets every item
// once and in order.
//
// A buffer accepts only a bounded number of items that the caller has not taken. When it is full,
// it makes the worker wait, and the worker makes the code wait.
//
// A stream is never in the store. It ends when the worker says that no item follows, when the
// caller leaves, or when the node stops. It also ends when the caller or the worker sends no
// request for too long. A caller that only sends other requests, and neither asks for items nor
// acknowledges one, keeps its stream for a limited time.
package replies
