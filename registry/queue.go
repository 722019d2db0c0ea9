package registry

// queue is a list of devices through their own links: a device is in one queue or in none, and is
// taken out of its middle at no cost. So a queue is never larger than what waits in it.
type queue struct {
	first, last *device
	n           int
}

func (q *queue) len() int { return q.n }

// push appends a device that is in no queue.
func (q *queue) push(d *device) {
	d.in, d.prev = q, q.last
	if q.last == nil {
		q.first = d
	} else {
		q.last.next = d
	}
	q.last = d
	q.n++
}

// pop takes out the first; nil: there is none.
func (q *queue) pop() *device {
	d := q.first
	if d != nil {
		d.dequeue()
	}
	return d
}

// dequeue takes a device out of the queue that it is in, if any.
func (d *device) dequeue() {
	q := d.in
	if q == nil {
		return
	}
	if d.prev == nil {
		q.first = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		q.last = d.prev
	} else {
		d.next.prev = d.prev
	}
	d.in, d.prev, d.next = nil, nil, nil
	q.n--
}
