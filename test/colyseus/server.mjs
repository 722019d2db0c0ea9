// A small game server for the test beside it: one process of a Colyseus, which a driver controls by
// lines of JSON.
//
//	node server.mjs FOLDER PORT     FOLDER has node_modules, PORT is of a Redis on 127.0.0.1
//
// Requests are {"id":1,"op":"create",...} on standard input, answers {"id":1,"ok":...} or
// {"id":1,"error":"..."} on standard output. {"event":"ready",...} is the first line,
// {"event":"creating","user":...,"roomId":...} says that a room is in its onCreate. Whatever
// Colyseus prints goes to standard error. The process ends with its input.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, port] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
console.log = console.info = console.debug = console.warn = console.error;

const { Server, Room, matchMaker } = require("@colyseus/core");
const { RedisDriver } = require("@colyseus/redis-driver");
const { RedisPresence } = require("@colyseus/redis-presence");
const { WebSocketTransport } = require("@colyseus/ws-transport");
const { Client } = load("@colyseus/sdk", "colyseus.js");

// load is the first of these packages that is there: the client has changed its name.
function load(...names) {
  for (const name of names) {
    try {
      return require(name);
    } catch (e) {
      if (e.code !== "MODULE_NOT_FOUND" || name === names.at(-1)) throw e;
    }
  }
}

const say = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

const alive = new Map(); // roomId -> room, from the begin of onCreate to the end of onDispose
const gates = new Map(); // user -> opens the onCreate that waits for it
const clients = new Map(); // user -> the client's side of a room

class Game extends Room {
  async onCreate({ user, hold, fail, stay = true }) {
    this.autoDispose = !stay;
    alive.set(this.roomId, this);
    const made = { roomId: this.roomId, roomName: "game", matchId: `m-${user}`, problemId: "p-1" };
    await reserve(user, made, 3600);
    if (hold) {
      const opened = new Promise((open) => gates.set(user, open));
      say({ event: "creating", user, roomId: this.roomId });
      await opened;
    }
    if (fail) {
      alive.delete(this.roomId);
      throw new Error("as asked for");
    }
  }

  onDispose() {
    alive.delete(this.roomId);
  }
}

// reserve writes what the game's queue tells a user: first that a room is being made, then which.
const reserve = (user, reservation, seconds) =>
  matchMaker.presence.setex(`queue:reservation:${user}`, JSON.stringify(reservation), seconds);

const room = (roomId) => {
  if (!alive.has(roomId)) throw new Error(`no room ${roomId} in this process`);
  return alive.get(roomId);
};

const operations = {
  // create answers when the room is listed, that is after onCreate. It makes the room in this process,
  // or orders it from the one that on names.
  async create({ user, ...options }) {
    await reserve(user, { status: "creating" }, 60);
    const { roomId } = await matchMaker.createRoom("game", { user, ...options });
    return roomId;
  },
  open: ({ user }) => gates.get(user)(),
  async join({ user, roomId }) {
    const client = new Client(`ws://127.0.0.1:${transport.server.address().port}`);
    const joined = await client.joinById(roomId);
    joined.onMessage("*", () => {});
    clients.set(user, joined);
  },
  leave: ({ user }) => clients.get(user).leave(),
  // visit asks for a seat in a room of any process. Colyseus checks the health of a process that does
  // not answer, and takes away its listings.
  visit: ({ roomId }) => matchMaker.joinById(roomId, {}),
  lock: ({ roomId }) => room(roomId).lock(),
  hide: ({ roomId }) => room(roomId).setPrivate(true),
  unlist({ roomId }) {
    const it = room(roomId);
    return it.setMatchmaking
      ? it.setMatchmaking({ unlisted: true })
      : it.listing.updateOne({ $set: { unlisted: true } });
  },
  dispose: async ({ roomId }) => void (await room(roomId).disconnect()),
  rooms: () => [...alive.keys()],
};

async function answer({ id, op, ...args }) {
  try {
    say({ id, ok: (await operations[op](args)) ?? null });
  } catch (e) {
    say({ id, error: `${op}: ${e?.message ?? e}` });
  }
}

const redis = { host: "127.0.0.1", port: Number(port) };
const transport = new WebSocketTransport({});
const server = new Server({
  transport,
  presence: new RedisPresence(redis),
  driver: new RedisDriver(redis),
  greet: false,
  gracefullyShutdown: false,
  // The driver says in which process a room lives.
  selectProcessIdToCreateRoom: async (name, { on }) => on ?? matchMaker.processId,
});
server.define("game", Game);
await server.listen(0, "127.0.0.1");
const { version } = JSON.parse(readFileSync(`${folder}/node_modules/@colyseus/core/package.json`));
say({ event: "ready", processId: matchMaker.processId, colyseus: version });

createInterface({ input: process.stdin })
  .on("line", (line) => answer(JSON.parse(line)))
  .on("close", () => process.exit());
