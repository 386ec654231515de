-- Forgets the states of these names. Answers how many there were.
return {redis.call('UNLINK', unpack(KEYS))}
