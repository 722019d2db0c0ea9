import { performance } from 'node:perf_hooks';

/** awake is in milliseconds and stands still while the machine is suspended. */
export const awake = () => performance.now();

let last = { awake: awake(), wall: Date.now() }, suspended = 0;

/** now is in milliseconds, goes on while the machine is suspended, and never goes back. */
export function now() {
  const at = { awake: awake(), wall: Date.now() };
  const missed = at.wall - last.wall - (at.awake - last.awake);
  if (missed > 100) suspended += missed; // less is the clocks' own inaccuracy
  last = at;
  return at.awake + suspended;
}

const stepped = 100, agree = 1000, minute = 60_000; // ms

/** A Clock is the server's, as seen from here: see registry/clock.go. */
export class Clock {
  ms = 0; // the server's time
  at = -Infinity; // then
  rtt = 0;
  back = 0; // by which it has stepped back in all

  /** read takes a reply's time. The shortest round trip of the last minute counts, unless the clock has stepped. */
  read(ms, sent, got) {
    const rtt = got - sent, mid = sent + rtt / 2, known = this.at > -Infinity;
    if (mid < this.at) return;
    const step = ms - this.when(mid), far = known && Math.abs(step) > stepped + (rtt + this.rtt) / 2;
    if (far && step < 0) this.back -= step;
    if (!known || far || rtt <= this.rtt || mid - this.at > minute) [this.ms, this.at, this.rtt] = [ms, mid, rtt];
  }

  /** when is the server's time at a time of this process. */
  when(at) { return Math.round(this.ms + at - this.at); }

  agrees(theirs, at) { return this.at > -Infinity && Math.abs(this.when(at) - theirs) <= agree; }

  /** stamp fixes when a handshake was, once a reply has been read that is later. */
  stamp(claim) { claim.at ??= this.when(claim.made) + this.back; }

  /** handshake is the server's time of a handshake. If the server's clock steps back, it goes back as well. */
  handshake(claim) { return claim.at === null ? this.when(claim.made) : Math.round(claim.at - this.back); }
}
