-- Deletes the states under these keys. Returns how many existed.
return {redis.call('UNLINK', unpack(KEYS))}
