// The page as the tests see it: its elements by id, and its state in `window.__tallow`. What runs inside the page is
// kept to short functions here.

import { assert } from './report.mjs';

export class Page {
  /** What went wrong beside the steps: console errors and uncaught exceptions. */
  problems = [];
  #page;

  /** Opens the address and waits until the page's script has started. */
  static async open(context, address) {
    const page = new Page();
    page.#page = await context.newPage();
    page.#page.on('console', (message) => {
      if (message.type() === 'error') page.problems.push(`${message.text()} (${message.location().url})`);
    });
    page.#page.on('pageerror', (error) => page.problems.push(`uncaught: ${error.message}`));
    await page.#page.goto(address, { waitUntil: 'load', timeout: 60_000 });
    await page.#page.waitForFunction(() => window.__tallow !== undefined, undefined, { timeout: 60_000 });
    return page;
  }

  /** `window.__tallow`, with the texts that go with it. */
  state() {
    return this.#page.evaluate(() => {
      const text = (id) => document.getElementById(id)?.textContent ?? '';
      const { ready, device, generating, error, tokens } = window.__tallow;
      const texts = { output: text('output'), deviceText: text('device'), status: text('status') };
      return { ready, device, generating, error, tokens, ...texts };
    });
  }

  /** Waits until the state satisfies the condition; after `seconds` it fails, and says what the state was. */
  async until(what, condition, seconds) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const state = await this.state();
      if (condition(state)) return state;
      assert(Date.now() < end, `waited ${seconds} s for ${what}; the page says ${JSON.stringify(state)}`);
      await this.pause(50);
    }
  }

  pause(milliseconds) {
    return new Promise((done) => setTimeout(done, milliseconds));
  }

  click(id) {
    return this.#page.click(`#${id}`, { timeout: 30_000 });
  }

  /** The text of an element by id, or of the whole body. */
  text(id) {
    return this.#page.innerText(id === 'body' ? 'body' : `#${id}`, { timeout: 30_000 });
  }

  /** Loads a model by its address, as a user would. */
  async load(address) {
    await this.#page.fill('#model-url', address, { timeout: 30_000 });
    await this.click('load');
  }

  /** Picks a model file from the disk. */
  chooseFile(path) {
    return this.#page.setInputFiles('#model-file', path, { timeout: 60_000 });
  }

  /** Types the prompt, starts, and waits until the page says that it is generating or has begun to. */
  async startGenerating(prompt) {
    await this.#page.fill('#prompt', prompt, { timeout: 30_000 });
    await this.click('generate');
    await this.until('the start', (state) => state.generating || state.error !== null, 60);
    const { error } = await this.state();
    assert(error === null, `generating gave an error: ${error}`);
  }

  /** Drops the problems that a step has provoked on purpose. */
  forgive(pattern) {
    this.problems = this.problems.filter((problem) => !pattern.test(problem));
  }

  /** From now on each value of the progress bar is kept, as a share of its maximum. */
  watchProgress() {
    return this.#page.evaluate(() => {
      const bar = document.getElementById('progress');
      const seen = (window.__seenProgress = []);
      const look = () => {
        // Without a value a progress bar is indeterminate.
        const share = bar.hasAttribute('value') ? bar.value / bar.max : null;
        if (share !== null && seen.at(-1) !== share) seen.push(share);
      };
      new MutationObserver(look).observe(bar, { attributes: true });
      setInterval(look, 5);
    });
  }

  seenProgress() {
    return this.#page.evaluate(() => window.__seenProgress);
  }

  /** From now on animation frames are counted and the longest pause of the page's own thread is measured. */
  watchFrames() {
    return this.#page.evaluate(() => {
      const start = performance.now();
      const watch = (window.__frames = { frames: 0, longest: 0, start });
      const frame = () => {
        if (window.__tallow.generating) watch.frames += 1;
        requestAnimationFrame(frame);
      };
      requestAnimationFrame(frame);
      let last = start;
      setInterval(() => {
        const now = performance.now();
        if (window.__tallow.generating) watch.longest = Math.max(watch.longest, now - last);
        last = now;
      }, 10);
    });
  }

  /** What `watchFrames` has seen while the page was generating. */
  frames() {
    return this.#page.evaluate(() => {
      const { frames, longest, start } = window.__frames;
      return { frames, longest, seconds: (performance.now() - start) / 1000 };
    });
  }

  /** The ids of the fields that no label names. */
  fieldsWithoutLabel() {
    return this.#page.evaluate(() =>
      [...document.querySelectorAll('input:not([type=hidden]), textarea, select, progress')]
        .filter((field) => field.labels.length === 0 && !field.ariaLabel && !field.getAttribute('aria-labelledby'))
        .map((field) => field.id || field.outerHTML.slice(0, 80)),
    );
  }

  /** The ids that Tab reaches from the top of the page. */
  async tabThrough() {
    await this.#page.evaluate(() => {
      document.activeElement?.blur();
      scrollTo(0, 0);
    });
    const reached = [];
    for (let step = 0; step < 60; step += 1) {
      await this.#page.keyboard.press('Tab');
      reached.push(await this.#page.evaluate(() => document.activeElement?.id ?? ''));
    }
    return [...new Set(reached)].filter((id) => id !== '');
  }

  /** How many pixels the content is wider than the window. */
  overflow() {
    return this.#page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  }

  async screenshot(path, width, height) {
    await this.#page.setViewportSize({ width, height });
    await this.#page.screenshot({ path, timeout: 60_000 });
  }

  /** Whether this browser gives a WebGPU adapter, on the page or in a worker. */
  hasAdapter() {
    return this.#page.evaluate(async () => {
      const onPage = navigator.gpu !== undefined && (await navigator.gpu.requestAdapter()) !== null;
      const source =
        'const has = async () => self.navigator.gpu !== undefined && (await navigator.gpu.requestAdapter()) !== null;' +
        'has().then(postMessage, () => postMessage(false));';
      const worker = new Worker(URL.createObjectURL(new Blob([source], { type: 'text/javascript' })));
      const inWorker = await new Promise((done) => (worker.onmessage = (event) => done(event.data)));
      worker.terminate();
      return onPage || inWorker;
    });
  }
}
