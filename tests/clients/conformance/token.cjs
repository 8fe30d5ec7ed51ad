// Shows a run's token with every request: the suite has no option for that. Both its own requests and those of the official
// client that it uses go through undici's global dispatcher.
const { Agent, setGlobalDispatcher } = require(require.resolve('undici', { paths: [process.env.CONFORMANCE_MODULES] }));

const token = `Bearer ${process.env.COFFERDAM_RUN_TOKEN}`;

function withToken(headers) {
  if (Array.isArray(headers)) return [...headers, 'authorization', token];
  if (headers && typeof headers[Symbol.iterator] === 'function') return [...[...headers].flat(), 'authorization', token];
  return { ...headers, authorization: token };
}

setGlobalDispatcher(
  new Agent().compose((dispatch) => (options, handler) =>
    dispatch({ ...options, headers: withToken(options.headers) }, handler),
  ),
);
