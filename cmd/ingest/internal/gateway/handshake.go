package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rollcall-redis/rollcall/internal/failpoint"
	"github.com/rollcall-redis/rollcall/internal/teltonika"
)

func handshakeOutcome(err error) string {
	switch {
	case err == nil:
		return "accepted"
	case errors.Is(err, teltonika.ErrHandshake), errors.Is(err, errTLS), errors.Is(err, errProxy),
		errors.Is(err, errCertificate):
		return "refused"
	case errors.Is(err, errUnknownDevice):
		return "unknown_device"
	case errors.Is(err, errUndecided):
		return "undecided"
	}
	return "incomplete"
}

// greet accepts the device without Redis too: the registry heals later.
func (s *session) greet(ctx context.Context) error {
	if err := s.within(handshakeTime, endRefused); err != nil {
		return err
	}
	if err := s.prepare(); err != nil {
		return err
	}
	waiting, cancel := context.WithCancel(s.g.stopping)
	defer cancel()
	s.giveUp.Store(&cancel) // end may have been called before: then the read fails
	imei, err := s.reader.IMEI()
	if err == nil {
		err = s.checkCertificate(imei)
	}
	if err == nil {
		s.beginSpan(ctx)
		if !teltonika.LuhnValid(imei) {
			s.g.metrics.luhn.Inc() // too many genuine devices fail this to refuse them
		}
		if err = s.identified(waiting); err == nil {
			err = s.g.authority.decide(waiting, imei)
		}
	}
	if errors.Is(err, teltonika.ErrHandshake) || errors.Is(err, errUnknownDevice) ||
		errors.Is(err, errCertificate) {
		_ = s.answer([]byte{teltonika.Refuse}) // a courtesy; the socket closes anyway
	}
	if err != nil {
		return err
	}
	if err := s.register(ctx, waiting, imei); err != nil {
		return err
	}
	return s.answer([]byte{teltonika.Accept})
}

func (s *session) prepare() error {
	if s.proxied != nil {
		if s.proxied.ProxyHeader() == nil {
			_, err := s.proxied.Read(nil) // returns the reason
			return fmt.Errorf("%w: %w", errProxy, cmp.Or(err, errors.New("none came")))
		}
		s.guest.Move(s.addr())
	}
	if s.tls == nil {
		return nil
	}
	err := s.tls.SetWriteDeadline(time.Now().Add(handshakeTime))
	if err == nil {
		// A key exchange needs a deep stack, which the session's goroutine would keep.
		done := make(chan error, 1)
		go func() { done <- s.tls.Handshake() }()
		err = <-done
	}
	if err == nil {
		s.below.over = true
		return nil
	}
	if errors.Is(err, errCertificate) {
		s.logRefusal("", err)
	}
	return fmt.Errorf("%w: %w", errTLS, err)
}

// register gives up its turn before the answer is sent: a device that does not read it delays no
// other.
func (s *session) register(ctx, waiting context.Context, imei string) error {
	select {
	case s.g.turns <- struct{}{}:
		defer func() { <-s.g.turns }()
	case <-waiting.Done():
		return errDraining
	}
	// The handshake may be stale. If the device has given up meanwhile, its handshake elsewhere is
	// newer.
	if _, end := s.unread(); end {
		return errGone
	}
	s.origin = origin{imei, named(s.conn.RemoteAddr())}
	s.g.claim(s)
	if !s.vouched() { // the authorities may have changed, and recheckCertificates finished, before
		return errCertificate
	}
	landing, cancel := context.WithTimeout(ctx, claimTime)
	defer cancel()
	if err := s.claim.Wait(landing); err != nil { // the registry has counted the error
		failpoint.Hit(failpoint.UnansweredRegister)
		s.g.cfg.Logger.Debug("device served before its registration landed", "imei", imei, "error", err)
	}
	return nil
}
