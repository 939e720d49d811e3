// Package replies holds the streams of items with which views of entities answer their callers.
//
// A stream is in the memory of the node that owns the entity. It has one caller, which takes items,
// and one worker, which sends them. Both may be in other processes: the engine brings their
// requests here. Items are numbered. The buffer of a stream keeps an item until the caller says
// that it has the item. The buffer ignores an item that it has received before. So either side may
// repeat a request whose answer was lost, and the caller gets every item once and in order.
//
// A buffer accepts only a bounded number of items that the caller has not taken. When it is full,
// it makes the worker wait, and the worker makes the code wait.
//
// Nothing is stored. A stream ends when its owner ends, when the caller or the worker is silent for
// too long, or when the caller reads nothing for too long.
package replies
