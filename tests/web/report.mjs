// Prints results the way Rust's test runner does, so that xtask reads both alike.

export class Report {
  passed = 0;
  failed = 0;

  /** Runs one named check; an exception is its failure. */
  async test(name, body) {
    try {
      await body();
      this.passed += 1;
      console.log(`test ${name} ... ok`);
      return true;
    } catch (error) {
      this.failed += 1;
      console.log(`test ${name} ... FAILED`);
      console.log(`    ${String(error?.stack ?? error).replaceAll('\n', '\n    ')}`);
      return false;
    }
  }

  /** Something could not be checked. xtask counts and names it. */
  skip(name, reason) {
    console.log(`skipped: ${name}: ${reason}`);
  }

  /** The closing line; returns the exit code. */
  finish() {
    const outcome = this.failed === 0 ? 'ok' : 'FAILED';
    console.log(`\ntest result: ${outcome}. ${this.passed} passed; ${this.failed} failed; 0 ignored`);
    return this.failed === 0 ? 0 : 1;
  }
}

/** Fails the present check unless the condition holds. */
export function assert(condition, message) {
  if (!condition) throw new Error(message);
}
