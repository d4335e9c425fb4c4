// The controls below the strip: buttons, the slider, play and its speed, and the keys.

const SPEEDS = [1, 2, 5, 10, 25, 100, 1000];

const ICONS = {
  play: "M4 2l10 6-10 6z",
  pause: "M3.5 2.5h3.5v11h-3.5zM9 2.5h3.5v11h-3.5z",
  next: "M5.5 2.5l1.2-1.2 6.7 6.7-6.7 6.7-1.2-1.2 5.5-5.500z",
  nextStep: "M2.5 2.500l1.2-1.2 6.7 6.7-6.7 6.7-1.2-1.2 5.5-5.500zM7.5 2.500l1.2-1.2 6.7 6.7-6.7 6.7-1.2-1.2 5.5-5.500z",
  last: "M3 2l8 6-8 6zM11.5 2h2v12h-2z",
};

const KEYS = [
  ["← →", "previous, next act"],
  ["Shift ← →, Page Up, Page Down", "previous, next env step"],
  ["Space", "play, pause"],
  ["Home, End", "first, last act"],
  ["d, Shift d", "next, previous decision that differs between two episodes; of one episode: that is not the most likely"],
  ["f", "first decision that differs"],
  ["− +", "slower, faster"],
  ["/", "search the event log"],
  ["t", "light, dark"],
  ["?", "this list"],
];

function iconButton(name, label, keys, action, isMirrored = false) {
  const attributes = { class: `icon icon-${name}`, "aria-label": label, title: `${label} (${keys})` };
  const node = button("", action, attributes);
  node.append(drawPath(ICONS[name], isMirrored ? "drawn mirrored" : "drawn"));
  return node;
}

class Transport {
  /** `player` moves: `moveActs`, `moveSteps`, `goTo`, `nextDifference`; the position is its own. */
  constructor(root, player) {
    Object.assign(this, { root, player, isPlaying: false, frame: null });
    this.play = iconButton("play", "Play", "space", () => this.toggle());
    this.difference = button("Next difference", () => player.nextDifference(1), { "aria-keyshortcuts": "d" });
    this.speed = element("select", { "aria-label": "Speed in acts per second", onchange: () => this.restart() });
    for (const speed of SPEEDS) this.speed.append(element("option", { value: speed, text: `${speed}/s` }));
    this.speed.value = "5";
    this.slider = element("input", { type: "range", min: 0, step: 1, "aria-label": "Position" });
    this.slider.addEventListener("input", () => player.goTo(Number(this.slider.value)));
    this.place = element("output", { class: "place" });
    const buttons = element(
      "div",
      { class: "buttons", role: "group", "aria-label": "Move" },
      iconButton("last", "First act", "Home", () => player.goTo(0), true),
      iconButton("nextStep", "Previous env step", "Shift ←", () => player.moveSteps(-1), true),
      iconButton("next", "Previous act", "←", () => player.moveActs(-1), true),
      this.play,
      iconButton("next", "Next act", "→", () => player.moveActs(1)),
      iconButton("nextStep", "Next env step", "Shift →", () => player.moveSteps(1)),
      iconButton("last", "Last act", "End", () => player.goTo(Infinity)),
    );
    root.replaceChildren(buttons, this.place, this.slider, this.difference, this.speed);
    document.addEventListener("keydown", (event) => this.onKey(event));
  }

  show(position, length, text) {
    if (this.slider.max !== String(length - 1)) this.slider.max = length - 1;
    this.slider.value = position;
    this.slider.setAttribute("aria-valuetext", text);
    setText(this.place, text);
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.start();
  }

  start() {
    if (this.player.isAtEnd()) this.player.goTo(0);
    this.isPlaying = true;
    this.showPlaying();
    let last = performance.now();
    const advance = (now) => {
      const acts = Math.floor(((now - last) * Number(this.speed.value)) / 1000);
      if (acts > 0) {
        last += (1000 * acts) / Number(this.speed.value);
        this.player.moveActs(acts);
      }
      if (this.player.isAtEnd()) this.pause();
      else this.frame = requestAnimationFrame(advance);
    };
    this.frame = requestAnimationFrame(advance);
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.isPlaying = false;
    this.showPlaying();
    this.player.announceSoon();
  }

  restart() {
    if (!this.isPlaying) return;
    cancelAnimationFrame(this.frame);
    this.start();
  }

  showPlaying() {
    this.play.replaceChildren(drawPath(ICONS[this.isPlaying ? "pause" : "play"], "drawn"));
    const label = this.isPlaying ? "Pause" : "Play";
    this.play.setAttribute("aria-label", label);
    this.play.title = `${label} (space)`;
  }

  changeSpeed(change) {
    const index = SPEEDS.indexOf(Number(this.speed.value)) + change;
    this.speed.value = SPEEDS[Math.max(0, Math.min(SPEEDS.length - 1, index))];
    this.restart();
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const pressesButton = event.key === " " && event.target.matches("button, summary");
    const action = pressesButton ? null : this.actionOf(event);
    if (!action) return;
    event.preventDefault();
    action();
  }

  actionOf({ key, shiftKey }) {
    const { player } = this;
    const direction = shiftKey ? -1 : 1;
    const actions = {
      ArrowRight: () => (shiftKey ? player.moveSteps(1) : player.moveActs(1)),
      ArrowLeft: () => (shiftKey ? player.moveSteps(-1) : player.moveActs(-1)),
      PageDown: () => player.moveSteps(1),
      PageUp: () => player.moveSteps(-1),
      " ": () => this.toggle(),
      Home: () => player.goTo(0),
      End: () => player.goTo(Infinity),
      d: () => player.nextDifference(direction),
      f: () => player.firstDifference(),
      D: () => player.nextDifference(-1),
      "+": () => this.changeSpeed(1),
      "-": () => this.changeSpeed(-1),
      "/": () => player.search(),
      t: () => player.toggleTheme(),
      "?": () => player.help(),
    };
    return Object.hasOwn(actions, key) ? actions[key] : null;
  }
}
