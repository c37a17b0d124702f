package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
)

// Names that the cases look for.
const (
	baitFile   = "/tmp/checkcell-canary"
	baitText   = "canary-5d1f90c2"
	baitTCP    = "127.0.0.1:47811"
	baitSocket = "@checkcell-canary"
)

// Bait is what cases look for outside their cell: a file that anyone can read,
// and listeners that note whoever reaches them. Nothing of it leaves loopback.
type Bait struct {
	listeners []net.Listener
	ends      sync.WaitGroup // of the goroutines, one a listener, which end with it

	mu   sync.Mutex
	hits []string
}

// LayBait makes the file and opens the listeners. What is there already is not
// ours, and is an error. Nothing is left behind on error. Call Close when done.
func LayBait() (*Bait, error) {
	b := &Bait{}
	for _, at := range []struct{ network, address string }{{"tcp4", baitTCP}, {"unix", baitSocket}} {
		l, err := net.Listen(at.network, at.address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lay bait: %w", err), b.stop())
		}
		b.listeners = append(b.listeners, l)
		b.ends.Go(func() { b.serve(l) })
	}
	f, err := os.OpenFile(baitFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lay bait: %w; where no other doctor runs, remove it", err), b.stop())
	}
	_, err = f.WriteString(baitText)
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, errors.Join(fmt.Errorf("lay bait: %w", err), b.Close())
	}
	return b, nil
}

// serve notes whoever comes, until the listener is closed.
func (b *Bait) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.hits = append(b.hits, l.Addr().Network()+" "+l.Addr().String())
		b.mu.Unlock()
		conn.Close() // whoever it was has nothing to say
	}
}

// taken lists what was reached so far. No bait is never reached.
func (b *Bait) taken() []string {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.hits...)
}

func (b *Bait) stop() error {
	var errs []error
	for _, l := range b.listeners {
		errs = append(errs, l.Close())
	}
	b.ends.Wait()
	return errors.Join(errs...)
}

// Close takes the bait away.
func (b *Bait) Close() error {
	if err := errors.Join(b.stop(), os.Remove(baitFile)); err != nil {
		return fmt.Errorf("take the bait away: %w", err)
	}
	return nil
}
