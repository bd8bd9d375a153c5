package invalidator

// fifo is a queue in a ring that grows. It is not safe for concurrent use.
type fifo[T any] struct {
	ring        []T // its length is a power of two
	first, size int
}

func (q *fifo[T]) len() int { return q.size }

func (q *fifo[T]) push(v T) {
	if q.size == len(q.ring) {
		q.resize(max(16, 2*len(q.ring)))
	}
	q.ring[(q.first+q.size)&(len(q.ring)-1)] = v
	q.size++
}

// head returns the first element; the queue must not be empty.
func (q *fifo[T]) head() T { return q.ring[q.first] }

// at returns the i-th element; the queue must have more.
func (q *fifo[T]) at(i int) T { return q.ring[(q.first+i)&(len(q.ring)-1)] }

// pop removes the first element; the queue must not be empty.
func (q *fifo[T]) pop() T {
	var zero T
	v := q.ring[q.first]
	q.ring[q.first] = zero
	q.first = (q.first + 1) & (len(q.ring) - 1)
	q.size--
	if len(q.ring) > 1024 && q.size < len(q.ring)/8 {
		q.resize(len(q.ring) / 4)
	}
	return v
}

func (q *fifo[T]) resize(n int) {
	ring := make([]T, n)
	for i := range q.size {
		ring[i] = q.ring[(q.first+i)&(len(q.ring)-1)]
	}
	q.ring, q.first = ring, 0
}
