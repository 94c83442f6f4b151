"""``[authentication.NAME]`` by ``type``: the options of the methods that rely on others for the proof of identity."""
